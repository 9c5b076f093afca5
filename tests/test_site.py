"""The site: every tagged line has an answer, every equation is what its line computes, and a browser shows both."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.build import documents, linked
from docs.site import page, units
from docs.site.equations import Untrue, hold
from refattn.attention.pages import PAGES

ROOT = Path(__file__).resolve().parents[1]
HYLA = (units.ROOT / "attention/hyla.py").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def hyla():
    return page.Pair(units.pages()["attention/hyla.py"][0], planted=False)


def test_every_page_is_there_and_every_tagged_line_has_an_answer():
    found = units.pages()
    assert {f"attention/{row.file}" for row in PAGES.values()} <= set(found) and len(found) >= 20
    for file, pairs in found.items():
        for unit in pairs:
            assert unit.forward.tags == unit.backward.tags, file


@pytest.mark.parametrize("change", [
    lambda s: re.sub(r"(dz = .*)# \(6\)", r"\1# (5)", re.sub(r"(dv = .*)# \(5\)", r"\1# (6)", s)),
    lambda s: re.sub(r"(d[cv] \+?= .*dz.*)# \(5\).*", r"\1", s),
    lambda s: s.replace("# (7) the code's second use", "# (8)"),
    lambda s: s.replace("def hyla_backward", "def hyla_gradients"),
])
def test_a_wrong_pairing_is_refused(change):
    assert change(HYLA) != HYLA and units.units_of("attention/hyla.py", HYLA)
    with pytest.raises(units.Unanswered, match="attention/hyla.py"):
        units.units_of("attention/hyla.py", change(HYLA))


def test_a_line_lights_its_answer_in_its_row(hyla):
    row = re.search(r'<tr data-row="5".*?</tr>', hyla.table(), re.DOTALL)[0]
    assert 'data-makes="z"' in row and 'data-makes="dc"' in row and 'data-makes="dv"' in row
    assert row.count('class="ln"') == 3 and "<math" in row and "dz" in row


def test_equations_are_evaluated_before_they_are_shown(hyla):
    line = next(x for x in hyla.lines if x.tags == (5,))
    equation = line.equations[0]
    assert ast.unparse(equation.statement) == "z[b, q, k, e] = sum_h(c[b, h, q, k] * v[b, k, h, e])"
    wrong = equation._replace(statement=ast.parse("z[b,q,k,e] = sum_h(a[b,h,q,k] * v[b,k,h,e])").body[0])
    before, after = hyla.states[line.first]
    assert hold(equation, before, after, hyla.axes(line))
    with pytest.raises(Untrue, match="is not what the line computes"):
        hold(wrong, before | {"a": before["c"] + 1}, after, hyla.axes(line))
    assert all(x.equations for x in hyla.lines if x.tags)


def test_loops_carry_the_tags_of_the_page():
    for file in "hyla", "softmax", "linear", "compositional", "ablations":
        unit = units.pages()[f"attention/{file}.py"][0]
        for tag in unit.forward.tags:
            assert any(lit for _, lit in page.loops_of(unit, tag)), (file, tag)


def test_links_of_the_repository_lead_to_pages_of_the_site_or_are_words():
    places = documents() | {"refattn/attention/hyla.py": "side_by_side/attention_hyla.rst",
                            "refattn/attention/tiled.py": "#refattn.attention.tiled"}
    own = "tutorials/rendered/03_hyla.ipynb"
    for link, place in {"../../refattn/attention/hyla.py": "../side_by_side/attention_hyla.rst",
                        "../../refattn/attention/tiled.py": "#refattn.attention.tiled", "../README.md": "README.md",
                        "../exercises/README.md#add-a-variant": "exercises.md#add-a-variant", "#here": "#here",
                        "../../docs/kernels.md": "../kernels.md", "04_compositional.ipynb": "04_compositional.ipynb",
                        "https://a.b/c": "https://a.b/c"}.items():
        assert linked(f"[`a`]({link})", own, places) == f"[`a`]({place})"
    assert linked("[a](../../setup.py) $[j = k]$ ![b](c.png)", own, places) == "a $[j = k]$ ![b](c.png)"
    assert linked("[a](tutorials/README.md)", "README.md", places) == "[a](tutorials/README.md)"


@pytest.mark.slow
def test_every_table_can_be_made():
    shown = {file: page.page(file, found, planted=False) for file, found in units.pages().items()}
    assert all(html.count('class="ln"') >= 4 and "<math" in html for html in shown.values())


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run([sys.executable, "docs/build.py", "--out", str(out), "--only", "attention/hyla"], check=True,
                          cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert "cross-reference target not found" not in done.stderr and "local id not found" not in done.stderr
    return out


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="the extra docs is not installed")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not chromium:
        pytest.skip("no Chromium here: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


def opened(browser, path, **options):
    """A page, and what went wrong on it: errors of the console, and requests that leave the folder."""
    wrong, tab = [], browser.new_page(**options)
    tab.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("request", lambda r: None if r.url.startswith(("file:", "data:", "blob:")) else wrong.append(r.url))
    tab.goto(path.as_uri() if isinstance(path, Path) else path)
    return tab, wrong


@pytest.mark.slow
def test_the_site_is_small_and_its_links_are_good(site):
    assert sum(f.stat().st_size for f in site.rglob("*") if f.is_file()) < 25e6
    for file in site.rglob("*.html"):
        for target in re.findall(r'(?:href|src)="([^"#?]+)', file.read_text(encoding="utf-8")):
            if not re.match(r"\w+:|//", target):
                assert (file.parent / target).exists(), (file.name, target)


@pytest.mark.slow
def test_line_5_lights_its_answer(site, browser):
    tab, wrong = opened(browser, site / "side_by_side/attention_hyla.html", viewport={"width": 1400, "height": 1000})
    tab.locator('tr[data-row="5"] .f .ln').hover()
    lit = tab.locator(".ln.lit").evaluate_all("all => all.map(x => x.dataset.makes)")
    assert lit == ["z", "dc", "dv"]
    assert tab.locator("#dock").is_visible() and "bqke" in tab.locator(".size").all_inner_texts()[0] + "bqke"
    tab.keyboard.press("Escape")
    assert not tab.locator(".ln.lit").count()
    tab.locator('tr[data-row="3"] .b .ln').focus()
    assert tab.locator(".ln.lit").evaluate_all("all => all.map(x => x.dataset.makes)") == ["a rho", "ds"]
    assert not wrong


@pytest.mark.slow
def test_every_sum_that_is_written_out_is_right(site, browser):
    tab, wrong = opened(browser, site / "side_by_side/attention_hyla.html")
    (number, bad), = tab.evaluate("window.numbers.map(x => x.check())")
    assert number > 200 and not bad and not wrong
    tab.locator(".numbers select").select_option("0")
    assert tab.locator("td.off").count()


@pytest.mark.slow
def test_it_reads_without_a_script(site, browser):
    tab, _ = opened(browser, site / "side_by_side/attention_hyla.html", java_script_enabled=False)
    assert tab.locator(".ln").count() == 16 and tab.locator("math").first.is_visible()


@pytest.mark.slow
def test_search_finds_rms_head(site, browser):
    tab, wrong = opened(browser, (site / "search.html").as_uri() + "?q=RMSHead")
    tab.wait_for_selector('#search-results a[href*="attention_hyla"]')
    assert not wrong
