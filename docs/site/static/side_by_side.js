/* Lights a line, its answer, its equation and its arrays; the dock at the foot says more.  Without this the tables read. */
(() => {
  const root = document.querySelector(".sbs");
  if (!root) return;
  document.documentElement.classList.add("js");
  const all = (what, from = root) => [...from.querySelectorAll(what)];
  const sizes = {b: 1, q: 1024, k: 1024, t: 1024, h: 8, d: 64, e: 64, m: 512, f: 2048, s: 8, r: 8, c: 64, w: 32, v: 32768, x: 8,
                 i: 64, o: 64, g: 32, j: 32, u: 4, n: 16};
  let pinned = null, now = null;

  const count = letters => [...letters].reduce((n, x) => n * (x === "1" ? 1 : sizes[x] || 1), 1);
  const short = n => n < 1e3 ? `${n}` : `${+(n / 1e3 ** Math.floor(Math.log10(n) / 3)).toPrecision(3)} ${" kMGTP"[Math.floor(Math.log10(n) / 3)]}`;
  const bytes = letters => `${short(4 * count(letters))}B`;

  function measure() {
    for (const x of all(".size")) {
      x.textContent = `${x.dataset.n} ${x.dataset.letters} · ${bytes(x.dataset.letters)}`;
      x.title = [...x.dataset.letters].map(l => l === "1" ? 1 : sizes[l]).join(" × ") + " numbers, float32";
    }
    if (now) light(now);
  }

  function controls() {
    const letters = [...new Set(all("table.pair").flatMap(t => [...(t.dataset.letters || "")]))].filter(x => sizes[x]);
    const box = all(".sizes")[0];
    if (!box || !letters.length) return;
    box.hidden = false;
    box.innerHTML = "sizes " + letters.map(x => `<label>${x} <input type="number" min="1" value="${sizes[x]}" data-x="${x}"></label>`).join("");
    box.addEventListener("input", event => {
      sizes[event.target.dataset.x] = Math.max(1, +event.target.value || 1);
      measure();
    });
  }

  const dock = root.appendChild(document.createElement("div"));
  dock.id = "dock";
  dock.hidden = true;
  dock.setAttribute("aria-live", "polite");

  function fill(row) {
    const arrays = all(".size", row), top = Math.max(1, ...arrays.map(x => count(x.dataset.letters)));
    const list = arrays.map(x => {
      const side = x.closest("td").classList[0], l = x.dataset.letters;
      return `<dt><b>${x.dataset.n}</b></dt><dd>${[...l].join(" ")}<br>${[...l].map(a => a === "1" ? 1 : sizes[a]).join(" × ")}</dd>` +
        `<dd>${bytes(l)}</dd><div class="bar ${side}"><i style="width:${Math.max(1, 100 * count(l) / top)}%"></i></div>`;
    }).join("");
    const more = row.querySelector(".more");
    dock.innerHTML = `<section><h4>(${row.dataset.row}) makes · float32</h4><dl>${list}</dl></section>` +
      (more ? `<div class="more">${more.innerHTML}</div>` : "");
    dock.hidden = false;
  }

  function light(line) {
    all(".lit:not(.loops .lit), .makes, .reads").forEach(x => x.classList.remove("lit", "makes", "reads"));
    now = line;
    if (!line) { dock.hidden = true; return; }
    const row = line.closest("tr"), table = line.closest("table");
    row.classList.add("lit");
    all(".ln", row).forEach(x => x.classList.add("lit"));
    for (const name of line.dataset.makes.split(" ")) {
      all(".v", table).filter(x => x.dataset.v === name).forEach(x => x.classList.add("makes"));
    }
    for (const name of line.dataset.reads.split(" ")) {
      all(".v", row).filter(x => x.dataset.v === name).forEach(x => x.classList.add("reads"));
    }
    fill(row);
  }

  for (const line of all(".ln")) {
    line.addEventListener("mouseenter", () => pinned || matchMedia("(hover: none)").matches || light(line));
    line.addEventListener("focus", () => { pinned = null; light(line); });
    line.addEventListener("click", () => { pinned = pinned === line ? null : line; light(line); });
    line.addEventListener("keydown", event => { if (event.key === "Enter") line.click(); });
  }
  addEventListener("keydown", event => {
    if (event.key === "Escape") { pinned = null; document.activeElement?.blur(); light(null); }
  });
  controls();
  measure();
  const asked = location.hash && document.getElementById(location.hash.slice(1));
  if (asked && asked.classList.contains("ln")) { pinned = asked; light(asked); asked.scrollIntoView({block: "center"}); }
})();
