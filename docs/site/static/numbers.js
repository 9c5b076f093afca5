/* The lines of a pair with small numbers: stepped forward and back, each cell with its sum, right or with a mistake planted. */
(() => {
  const esc = text => text.replace(/[&<>"]/g, x => `&#${x.charCodeAt(0)};`);
  const long = y => (y < 0 ? "−" : "") + +Math.abs(y).toPrecision(5);
  const brief = y => (y < 0 ? "−" : "") + (Math.abs(y) < .005 ? "0" : Math.abs(y) < 9.95 ? +Math.abs(y).toFixed(1) || +Math.abs(y).toFixed(2) : Math.abs(y).toFixed(0));
  const signs = {"+": " + ", "-": " − ", "*": " · ", "/": " / ", ">": " > ", "<": " < ", "==": " == ", "**": " ^ "};

  function widget(box) {
    const D = JSON.parse(box.querySelector("script").textContent);
    let sizes = {};
    const learn = tree => {                                     // the sizes of the letters in an expression
      if (Array.isArray(tree)) tree[0] === "at" ? tree[2].forEach((x, i) => { sizes[x] ??= D.shapes[tree[1]]?.[i]; }) : tree.forEach(learn);
    };
    let step = 0, bug = -1;
    const changes = (i, planted) => ({...D.steps[i], ...(planted && bug >= 0 ? D.bugs[bug].steps[i] : {})});
    function value(name, i, planted = true) {                   // after step i
      for (let j = i; j >= 0; j--) { const x = changes(j, planted)[name]; if (x) return x; }
      return D.given[name] || null;
    }
    const flat = (name, ix) => ix.reduce((n, x, i) => n * D.shapes[name][i] + (D.shapes[name][i] === 1 ? 0 : x), 0);
    const places = (name, f) => D.shapes[name].reduceRight(([rest, ix], n) => [Math.floor(rest / n), [rest % n, ...ix]], [f, []])[1];
    const title = (name, f) => `${name}[${places(name, f).map((x, i) => D.letters[name][i] + x).filter((_, i) => D.shapes[name][i] > 1).join(" ")}]`;

    function write(tree, at, seen) {                            // a worked expression as text that can be evaluated
      if (typeof tree === "number") return `${tree}`;
      const [kind, a, b] = tree;
      if (kind === "size") return `${D.numbers[a] ?? sizes[a]}`;
      if (kind === "at") {
        const f = flat(a, b.map(x => x === "1" ? 0 : at[x] ?? 0)), old = value(a, step - 1), x = (old || value(a, step))[f];
        seen.push([a, f]);
        return x < 0 ? `(${long(x)})` : long(x);
      }
      if (kind === "sum" || kind === "mean") {
        const terms = [...Array(sizes[a]).keys()].map(x => write(b, {...at, [a]: x}, seen));
        return kind === "sum" ? `(${terms.join(" + ")})` : `(${terms.join(" + ")}) / ${terms.length}`;
      }
      if (kind === "-" && a === 0) return `(−${write(b, at, seen)})`;
      if (kind in signs) {
        const text = `${write(a, at, seen)}${signs[kind]}${write(b, at, seen)}`;
        return kind === "*" ? text : kind === ">" || kind === "<" || kind === "==" ? `[${text}]` : `(${text})`;
      }
      return `${kind}(${tree.slice(1).map(x => write(x, at, seen)).join(", ")})`;
    }
    function worked(name, f) {
      const line = D.lines[step];
      if (!line.trees[name]) return null;
      const at = {}, seen = [];
      sizes = {};
      learn(line.trees[name]);
      places(name, f).forEach((x, i) => { at[line.index[name][i]] = x; });
      let text = write(line.trees[name], at, seen).replace(/^\((.*)\)$/, (all, x) => { let d = 0; for (const c of x) { d += (c === "(") - (c === ")"); if (d < 0) return all; } return x; });
      if (line.sign[name] !== "=") text = `${long(value(name, step - 1)[f])} ${line.sign[name][0] === "+" ? "+" : "−"} ${text}`;
      return {text, seen};
    }

    function array(name) {
      const line = D.lines[step], now = value(name, step), shape = D.shapes[name], right = now && value(name, step, false);
      const axes = shape.map((n, i) => i).filter(i => shape[i] > 1 && D.letters[name][i] !== "b"), width = axes.length ? shape[axes.at(-1)] : 1;
      const depth = axes.length > 2 ? axes.slice(0, -2).reduce((n, i) => n * shape[i], 1) : 1, total = shape.reduce((a, b) => a * b, 1);
      const peak = Math.max(1e-9, ...(now || []).map(Math.abs));
      const cells = [...Array(total).keys()].map(f => {
        if (!now) return "<td></td>";
        const off = Math.abs(now[f] - right[f]) > 1e-3 * (Math.abs(right[f]) + .01), weight = Math.round(70 * Math.abs(now[f]) / peak);
        return `<td data-n="${name}" data-f="${f}" class="${off ? "off" : ""}" style="background:color-mix(in srgb, var(${now[f] < 0 ? "--neg" : "--pos"}) ${weight}%, transparent)" title="${title(name, f)} = ${now[f]}${off ? ", right: " + right[f] : ""}">${brief(now[f])}</td>`;
      });
      const rows = [];
      for (let i = 0; i < total; i += width) rows.push(`<tr${depth > 1 && i % (total / depth) === 0 && i ? ' class="gap"' : ""}>${cells.slice(i, i + width).join("")}</tr>`);
      const made = line && name in changes(step, true), read = line && line.reads.includes(name);
      return `<figure class="${made ? "made-now" : read ? "read-now" : now ? "" : "later"}"><figcaption>${name} <small>${axes.map(i => D.letters[name][i]).join("")}</small></figcaption><table>${rows.join("")}</table></figure>`;
    }
    const names = Object.keys(D.letters), gradient = n => n[0] === "d" && names.includes(n.slice(1));
    const columns = names.filter(n => !gradient(n)).map(n => [n, ...names.filter(x => x === "d" + n)]);
    const bar = box.appendChild(document.createElement("div")), say = box.appendChild(document.createElement("div"));
    const shelf = box.appendChild(document.createElement("div")), planted = box.appendChild(document.createElement("p"));
    bar.className = "track"; say.className = "say"; shelf.className = "shelf";

    function explain(name, f) {
      shelf.querySelectorAll(".src, .here").forEach(x => x.classList.remove("src", "here"));
      shelf.querySelector(`[data-n="${name}"][data-f="${f}"]`)?.classList.add("here");
      const x = value(name, step)[f], right = value(name, step, false)[f], found = worked(name, f), out = say.querySelector(".worked");
      if (Math.abs(x - right) > 1e-3 * (Math.abs(right) + .01)) out.textContent = `${title(name, f)} is ${long(x)} with the mistake, and ${long(right)} without`;
      else out.textContent = found && found.text.length < 400 ? `${title(name, f)} = ${found.text} = ${long(x)}` : `${title(name, f)} = ${long(x)}`;
      found?.seen.forEach(([n, g]) => shelf.querySelector(`[data-n="${n}"][data-f="${g}"]`)?.classList.add("src"));
    }
    function show(i) {
      step = Math.max(0, Math.min(D.lines.length - 1, i));
      const line = D.lines[step], source = document.getElementById(line.id), side = line.id.match(/-([fb])\d+$/)[1];
      bar.innerHTML = '<button data-d="-1">← back</button> forward ' + D.lines.map((x, j) => (j && side0(j) !== side0(j - 1) ? " ↷ backward " : "") +
        `<button data-i="${j}" class="${side0(j)}"${j === step ? ' aria-current="step"' : ""}>${x.again ? "↷" : x.tag}</button>`).join("") + ' <button data-d="1">next →</button>';
      const math = source.querySelector(".made") || source.closest("tr").querySelector(".eq");
      say.innerHTML = `<code class="${side}">${source.querySelector("code").innerHTML}</code><div>${line.again ? "" : math.innerHTML}</div><p class="worked"></p>`;
      shelf.innerHTML = columns.map(c => `<div>${c.map(array).join("")}</div>`).join("");
      const first = Object.keys(changes(step, true))[0];
      if (first) explain(first, 0);
    }
    const side0 = j => D.lines[j].id.match(/-([fb])\d+$/)[1];
    bar.onclick = event => { const x = event.target.dataset; if (x.d) show(step + +x.d); if (x.i) show(+x.i); };
    box.tabIndex = 0;
    box.onkeydown = event => { const d = {ArrowRight: 1, ArrowLeft: -1}[event.key]; if (d && event.target.tagName !== "SELECT") { event.preventDefault(); show(step + d); } };
    shelf.onmouseover = event => { const x = event.target.closest("[data-n]"); if (x && x.dataset.n in changes(step, true)) explain(x.dataset.n, +x.dataset.f); };
    if (D.bugs.length) {
      planted.innerHTML = `Plant a mistake: <select><option value="-1">none</option>${D.bugs.map((b, i) => `<option value="${i}">${esc(b.sentence)}</option>`).join("")}</select> <small>${D.bugs.length} of ${D.planted} change this example; a framed cell differs from the right run</small>`;
      planted.querySelector("select").onchange = event => {
        bug = +event.target.value;
        const first = bug < 0 ? step : D.bugs[bug].steps.findIndex(x => Object.keys(x).length);
        show(first < 0 ? step : first);
      };
    }
    show(0);
    return {                                                    // every written-out sum, evaluated as text: [all, wrong ones]
      check() {
        let all = 0;
        const wrong = [], before = step;
        for (step = 0; step < D.lines.length; step++) for (const [n, cells] of Object.entries(D.steps[step])) cells.forEach((y, f) => {
          const found = worked(n, f);
          if (!found) return;
          const text = found.text.replaceAll("−", "-").replaceAll("·", "*").replaceAll("^", "**").replace(/\[([^\]]+)\]/g, "(($1) ? 1 : 0)").replace(/\b(sqrt|exp|max|tanh|log)\b/g, "Math.$1");
          all++;
          if (!(Math.abs(Function(`return ${text}`)() - y) <= 2e-3 * Math.max(...cells.map(Math.abs)) + 1e-4)) wrong.push([D.lines[step].id, n, f, found.text, y]);
        });
        step = before;
        return [all, wrong];
      },
    };
  }
  window.numbers = [...document.querySelectorAll(".sbs .numbers")].map(widget);
})();
