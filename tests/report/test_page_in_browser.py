"""The page in a real browser: every figure drawn, no error, choices and keys work, readable on a phone."""

import shutil

import pytest

from pluribus.report.figure_files import write_figures
from pluribus.report.groups import group_records
from pluribus.report.page import write_page
from tests.report.records import classes, failed, numbers, sae

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
PATIENCE = 180_000
"""Milliseconds that a loaded machine may take for what is a matter of a few."""
KINDS = ("single", "deep_ensembles", "mc_dropout", "batch_ensemble")

pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs Chromium")


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as play:
        started = play.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    runs = [classes(kind, seed, 1 + i) for i, kind in enumerate(KINDS) for seed in range(3)]
    runs += [numbers(kind, seed, 1 / (1 + i)) for i, kind in enumerate(KINDS) for seed in range(2)]
    path = write_page(tmp_path_factory.mktemp("page"), group_records([*runs, failed()]))
    return path.as_uri()


@pytest.fixture
def opened(browser, address):
    """Opens the page in a window; after the test it must have logged no error and asked for nothing."""
    pages, complaints = [], []

    def open_page(width=1280, scheme="light", where=address):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else 0)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda r: complaints.append(r.url) if r.url.startswith("http") else 0)
        page.goto(where)
        page.wait_for_selector("html[data-ready]")
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert complaints == []


def drawn(page):
    """The figures in sight that have traces."""
    script = "els => els.filter(e => e.offsetParent && e.querySelector('.trace, .bars path')).map(e => e.id)"
    return page.eval_on_selector_all(".plot", script)


def column(page, place):
    return page.eval_on_selector_all(
        "#group-0 .sortable tbody tr", f"rows => rows.map(row => row.children[{place}].dataset.value)"
    )


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
@pytest.mark.sampled(3)
def test_every_figure_is_drawn_and_nothing_sticks_out(opened, width, scheme):
    page = opened(width, scheme)
    wanted = [f"{name}-0" for name in ("pareto", "reliability", "selective", "separation", "severity")]
    assert drawn(page) == wanted
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    widths = page.eval_on_selector_all(
        "#group-0 .plot .main-svg", "els => els.map(e => e.getBoundingClientRect().right)"
    )
    assert max(widths) <= width
    assert page.locator("#group-0 [data-more]").count() == (3 if width < 600 else 0)  # tables that are cut
    assert page.evaluate("document.documentElement.dataset.theme") == scheme


@pytest.mark.slow
def test_text_on_a_phone_is_large_enough_to_read(opened):
    sizes = opened(390).eval_on_selector_all(
        "#group-0 p, #group-0 li, #group-0 td, #group-0 button, #group-0 .gallery div",
        "els => els.map(e => parseFloat(getComputedStyle(e).fontSize))",
    )
    assert min(sizes) >= 12


@pytest.mark.slow
def test_heads_sort_by_pointer_and_by_key(opened):
    page = opened()
    head = page.locator("#group-0 .sortable th button").nth(2)
    head.click()
    values = [float(value) for value in column(page, 2)]
    assert values == sorted(values)
    head.focus()
    page.keyboard.press("Enter")
    assert [float(value) for value in column(page, 2)] == sorted(values, reverse=True)
    assert page.locator("#group-0 .sortable th").nth(2).get_attribute("aria-sort") == "descending"
    page.locator("#group-0 .sortable th button").first.click()
    assert column(page, 0) == sorted(KINDS)


@pytest.mark.slow
def test_choices_change_the_figure(opened):
    page = opened()
    title = "document.getElementById('pareto-0').layout.yaxis.title.text"
    assert page.evaluate(title).startswith("NLL")
    page.locator("#group-0 .card", has_text="Quality against cost").locator("select").first.select_option(
        "ECE"
    )
    page.wait_for_function(f"{title}.startsWith('ECE')")
    card = page.locator("#group-0 .card", has_text="Does it notice").first
    shares = "JSON.stringify(document.getElementById('separation-0').data[0].y)"
    before = page.evaluate(shares)
    card.locator("select").first.select_option("single")
    page.wait_for_function(f"before => {shares} != before", arg=before)


def test_the_recommended_configuration_is_chosen_first(opened):
    card = opened().locator("#group-0 .card", has_text="Does it notice").first
    assert card.locator("select").first.input_value() == "batch_ensemble"


@pytest.mark.slow
def test_arrow_keys_show_the_configuration_under_a_point(opened):
    page = opened()
    page.locator("#pareto-0").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#pareto-0 .hoverlayer .hovertext")
    assert "single" in page.locator("#pareto-0 .hoverlayer").text_content()
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "document.querySelector('#pareto-0 .hoverlayer').textContent.includes('deep_ensembles')"
    )
    page.keyboard.press("Tab")
    page.wait_for_selector("#pareto-0 .hoverlayer .hovertext", state="detached")


@pytest.mark.slow
def test_a_table_that_is_cut_has_a_shadow_until_its_end_is_reached(opened):
    def tables(page):
        """Return for each visible table if it is wider than its card, and if a shadow shows that."""
        script = """els => els.filter(e => e.checkVisibility() && e.children.length).map(
            e => [e.scrollWidth > e.clientWidth, getComputedStyle(e).backgroundImage != 'none'])"""
        return page.eval_on_selector_all("#group-0 .scroll", script)

    assert tables(opened(1280)) == [[False, False]] * 3
    page = opened(390)
    assert tables(page) == [[True, True]] * 3
    page.eval_on_selector_all("#group-0 .scroll", "els => els.forEach(e => { e.scrollLeft = 9999 })")
    page.wait_for_function("!document.querySelector('#group-0 [data-more]')")
    assert tables(page) == [[True, False]] * 3
    page.set_viewport_size({"width": 300, "height": 900})
    page.wait_for_function("document.querySelectorAll('#group-0 [data-more]').length == 3")


@pytest.mark.slow
def test_terms_are_explained_on_hover_and_on_focus(opened):
    page = opened()
    page.locator("#group-0 .term", has_text="NLL").first.hover()
    assert "Average surprise" in page.locator("#tip").inner_text()
    page.mouse.move(0, 0)
    page.locator("#group-0 .sortable th button", has_text="ECE").first.focus()
    assert "confidence and accuracy" in page.locator("#tip").inner_text()
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()


@pytest.mark.slow
def test_tasks_are_changed_by_keys_and_the_theme_by_its_button(opened):
    page = opened()
    page.locator("[role=tab]").first.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#intervals-1 .trace")
    assert drawn(page) == ["pareto-1", "reliability-1", "selective-1", "intervals-1"]
    page.locator("#theme").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    colour = page.evaluate("getComputedStyle(document.body).color")
    page.wait_for_function(
        "wanted => getComputedStyle(document.querySelector('#pareto-1 .xtitle')).fill == wanted", arg=colour
    )


@pytest.mark.slow
def test_the_numbers_of_a_figure_can_be_read(opened):
    page = opened()
    card = page.locator("#group-0 .card", has_text="What if it may abstain").first
    card.locator("summary").click()
    card.locator("details table tbody tr").first.wait_for()
    assert card.locator("details table tbody tr").count() == 20 * len(KINDS)


@pytest.mark.slow
def test_the_legend_shows_other_configurations(opened):
    page = opened()
    seen = (
        "document.getElementById('selective-0').data.filter(t => t.visible !== 'legendonly').map(t => t.name)"
    )
    assert page.evaluate(seen) == ["single", "batch_ensemble"]
    # Arrow keys walk over what is seen alone.
    page.locator("#selective-0").focus()
    for _ in range(21):
        page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "document.querySelector('#selective-0 .hoverlayer').textContent.includes('batch_ensemble')"
    )
    page.locator("#selective-0 .legend .legendtoggle").nth(1).click()
    page.wait_for_function(f"{seen}.length == 3")
    assert "deep_ensembles" in page.evaluate(seen)


@pytest.mark.slow
def test_inputs_and_exits_are_drawn_walked_over_and_told(opened, tmp_path):
    page = opened(where=write_page(tmp_path, group_records([sae(1, 1), sae(2, 1), sae(2, 3)])).as_uri())
    page.wait_for_selector("#grid-0 .hm image", state="attached")
    page.wait_for_selector("#preference-0 .trace", state="attached")  # a level line has no height
    page.locator("#grid-0").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "document.querySelector('#grid-0 .hoverlayer').textContent.startsWith('N = 2, K = 3')"
    )
    for card, rows in (("How many inputs", 3), ("Which depths", 2 + 3 * 4)):
        found = page.locator("#group-0 .card", has_text=card).first
        found.locator("summary").click()
        found.locator("details table tbody tr").first.wait_for()
        assert found.locator("details table tbody tr").count() == rows


@pytest.mark.slow
def test_ten_methods_are_drawn(opened, tmp_path):
    kinds = ["single", *(f"method_{i}" for i in range(9))]
    path = write_page(tmp_path, group_records([classes(k, s, 2) for k in kinds for s in range(3)]))
    assert len(drawn(opened(where=path.as_uri()))) == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "runs",
    [[], [failed()], [classes()], [classes(outcomes=None, shifted={}, ood={})]],
    ids=["no record", "a failed run", "one run", "no outcomes"],
)
def test_poor_records_draw_without_an_error(opened, tmp_path, runs):
    page = opened(where=write_page(tmp_path, group_records(runs)).as_uri())
    assert page.locator("main").inner_text()


@pytest.mark.slow
def test_figures_are_saved_as_pictures(tmp_path):
    pytest.importorskip("kaleido")
    written = write_figures(tmp_path, group_records([numbers()]))
    names = sorted(path.name for path in written)
    stems = ("intervals", "pareto", "reliability", "selective")
    assert names == sorted(f"{stem}.{ending}" for stem in stems for ending in ("png", "svg"))
    for path in written:
        opening = path.read_bytes()[:5]
        assert opening == (b"\x89PNG\r" if path.suffix == ".png" else b"<svg ")
