"""The dashboard in a real browser: what it shows, that no data runs as code, and what it does without responses."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse
from starlette.routing import Route

import penstock
from penstock import Processor, Record, StreamsBuilder, Topology, key_value_store
from penstock.engines.port import Whereabouts
from penstock.observation import Trouble
from penstock.runtime.states import State
from tests.unit.admin.fake_application import FakeApplication, Feeder, served, store_routes, under_load
from verification.harness.chromium import Chromium, chromium

pytestmark = [pytest.mark.jvm, pytest.mark.skipif(chromium() is None, reason="no chromium: tools/chromium/bring .parts/chromium")]

PICTURES = Path(__file__).parents[2] / "reports" / "dashboard"
ATTACK = "<img src=x onerror=\"window.harmed='{}'\">"
TURNED = "\u202etxt.exe"
CUSTOMERS = [{"key": f"customer-{number:03d}", "value": {"region": "eu", "orders": number}} for number in range(120)]


@pytest.fixture
def browser() -> Iterator[Chromium]:
    with Chromium() as started:
        yield started


def text(browser: Chromium, selector: str) -> str:
    return str(browser.run(f"document.querySelector({selector!r}).textContent"))


def opened(browser: Chromium, url: str) -> None:
    browser.open(f"{url}/")
    browser.wait_for("document.querySelectorAll('#epochs g').length")


def test_an_application_under_load_is_shown_and_updated(browser: Chromium) -> None:
    application, feeder = under_load()
    with served(application, *store_routes(CUSTOMERS)) as url, feeder.live():
        opened(browser, url)
        assert text(browser, "#application") == "shop-orders"
        assert text(browser, "#state") == "running"
        assert browser.run("document.title") == "shop-orders · running"
        assert text(browser, "#throughput").endswith("krecords/s")
        assert "customers-2" in text(browser, "#lag-about")
        assert browser.run("document.querySelectorAll('#lanes tr').length") == 4
        assert browser.run("document.querySelectorAll('#sources tr').length") == 8
        assert browser.run("document.querySelectorAll('#topology [data-node]').length") == len(application.topology.nodes)
        assert "/s · " in text(browser, "#topology [data-node='paid-only'] .detail")
        assert text(browser, "#topology [data-topic='orders'] .detail").startswith("lag ")
        assert " · " in text(browser, "#topology [data-store='customers'] .detail")
        assert "penstock dlq ls orders-late" in text(browser, "#letters")
        browser.run("document.querySelector('[data-browse=customers]').focus()")
        before = text(browser, "#epoch")
        browser.wait_for(f"document.querySelector('#epoch').textContent !== {before!r}")
        assert browser.run("document.activeElement.dataset.browse") == "customers", "the focus does not move"
        PICTURES.mkdir(parents=True, exist_ok=True)
        for scheme, paper in (("light", "rgb(243, 245, 248)"), ("dark", "rgb(13, 16, 20)")):
            browser.prefer(scheme)
            assert browser.run("getComputedStyle(document.body).backgroundColor") == paper
            browser.screenshot(PICTURES / f"{scheme}.png", full=True)
        browser.resize(390, 844, is_phone=True)
        assert browser.run("document.documentElement.scrollWidth") <= 390, "a phone does not scroll sideways"
        browser.screenshot(PICTURES / "phone.png", full=True)
    assert browser.complaints == []


def three_sources() -> Topology:
    """Orders, payments and customers, joined and counted: wider than half of a screen."""
    builder = StreamsBuilder(value=dict)
    orders, payments = builder.stream("orders", name="orders-in"), builder.stream("payments", name="payments-in")
    customers = builder.table("customers", store="customers")
    paid = orders.join(payments, lambda order, payment: {**order, **payment}, within="10m", name="pay")
    late = orders.left_join(payments, lambda order, payment: {**order, "paid": payment is not None}, within="1m", name="late")
    late.filter(lambda _, order: not order["paid"], name="unpaid").to("orders-unpaid")
    of_customer = paid.select_key(lambda _, order: order["customer"], name="by-customer")
    named = of_customer.join(customers, lambda order, customer: {**order, **customer})
    named.to("orders-with-customers")
    named.group_by(lambda _, order: order["region"], name="by-region").count(store="orders-per-region")
    of_customer.group_by_key().count(store="a-rather-long-name-of-orders-per-customer").to_stream().to("counts", value=int)
    return builder.build()


CUT = """[...document.querySelectorAll("main button, header button")].filter((one) => {
  const box = one.getBoundingClientRect();
  const holds = ({ left, right }) => box.left >= left - 1 && box.right <= right + 1;
  const inside = (place) => !place || holds(place.getBoundingClientRect());
  return box.width && !(inside(one.closest(".scroll")) && inside(one.closest(".panel")) && inside(document.body));
}).map((one) => one.outerHTML)"""
"""The buttons that are not there in their whole width."""

DRAWING = "document.querySelector('#topology svg').getBoundingClientRect()"
FITS = f"{DRAWING}.width <= document.querySelector('#topology').clientWidth && {DRAWING}.height <= innerHeight * 0.82 + 1"


@pytest.mark.parametrize("width", [1280, 768, 420])
def test_three_sources_fit_and_no_button_is_cut(browser: Chromium, width: int) -> None:
    application, feeder = under_load(topology=three_sources())
    application.recorder.whereabouts = lambda: Whereabouts("spark", {"127.0.0.1": 4}, "Spark tasks")
    application.recorder.troubles = lambda: [Trouble(int(time.time() * 1000) - 9_000, "error", ATTACK.format("trouble"))]
    config = Route("/config", lambda _: JSONResponse({"lanes": 4, "admin_token": "[hidden]", "kafka": {"client.id": "me"}}))
    with served(application, *store_routes(CUSTOMERS), config) as url, feeder.live():
        browser.resize(width, 900, is_phone=width < 500)
        opened(browser, url)
        assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.run(FITS), browser.run(f"[{DRAWING}.width, {DRAWING}.height]")
        assert browser.run(CUT) == []
        assert text(browser, "#engine") == "spark: 4 Spark tasks"
        assert text(browser, "#version") == penstock.__version__
        assert "window.harmed='trouble'" in text(browser, "#troubles")
        PICTURES.mkdir(parents=True, exist_ok=True)
        browser.screenshot(PICTURES / f"three-sources-{width}.png", full=True)
        before = browser.run(f"{DRAWING}.width")
        browser.run("document.querySelector('#larger').click(); document.querySelector('#larger').click()")
        assert browser.run(f"{DRAWING}.width") == pytest.approx(before * 1.25**2, rel=0.01)
        browser.run("document.querySelector('#smaller').click()")
        assert browser.run(f"{DRAWING}.width") == pytest.approx(before * 1.25, rel=0.01)
        assert browser.run("document.documentElement.scrollWidth") <= width, "the drawing scrolls, the page does not"
        browser.run("document.querySelector('#fit').click()")
        assert browser.run(FITS)
        browser.run("document.querySelector('#open-settings').click()")
        browser.wait_for("document.querySelectorAll('#values tr').length === 3")
        assert text(browser, "#values") == "lanes4admin_token[hidden]kafka.client.idme"
        browser.run("document.querySelector('#close-settings').click()")
        assert browser.run("window.harmed") is None
    assert browser.complaints == []


def test_an_epoch_can_be_selected_by_keyboard(browser: Chromium) -> None:
    application, _ = under_load()
    with served(application) as url:
        opened(browser, url)
        newest = application.epoch
        browser.run("document.querySelector('#epochs').focus()")
        browser.press("ArrowLeft")
        browser.press("ArrowLeft")
        assert browser.run("document.querySelector('#epochs .chosen').dataset.epoch") == str(newest - 1)
        assert text(browser, "#chosen").startswith(f"{newest - 1:,} at ")
        assert "send offsets 6.0 ms" in text(browser, "#chosen")
    assert browser.complaints == []


def test_the_keys_of_a_store_can_be_browsed_by_page_and_looked_up(browser: Chromium) -> None:
    application, _ = under_load()
    with served(application, *store_routes(CUSTOMERS)) as url:
        opened(browser, url)
        browser.run("document.querySelector('[data-browse=customers]').click()")
        browser.wait_for("document.querySelectorAll('#entries tr').length === 50")
        browser.run("document.querySelector('#more').click()")
        browser.wait_for("document.querySelectorAll('#entries tr').length === 100")
        browser.run("document.querySelector('#more').click()")
        browser.wait_for("document.querySelectorAll('#entries tr').length === 120 && document.querySelector('#more').hidden")
        assert text(browser, "#browsed-epoch") == "as of epoch 41,380"
        browser.run("document.querySelector('#wanted').focus()")
        browser.write("customer-007")
        browser.run("document.querySelector('#ask').requestSubmit()")
        browser.wait_for("document.querySelectorAll('#entries tr').length === 1")
        assert text(browser, "#entries") == 'customer-007{"region":"eu","orders":7}'
        browser.run("document.querySelector('#wanted').value = 'nobody'; document.querySelector('#ask').requestSubmit()")
        browser.wait_for("document.querySelector('#browser-says').textContent === 'There is no such key.'")
        browser.run("document.querySelector('#close').click(); document.querySelector('[data-browse=orders-per-region]').click()")
        browser.wait_for("document.querySelectorAll('#entries tr').length === 50")
        browser.run("document.querySelector('#wanted').value = 'eu'; document.querySelector('#ask').requestSubmit()")
        browser.wait_for("document.querySelectorAll('#entries tr').length === 3")
        assert text(browser, "#entries tr:last-child") == (
            "eu2window start 1970-01-01T00:02:00.000Z\nwindow end 1970-01-01T00:03:00.000Z"
        )
    assert [complaint for complaint in browser.complaints if "404" not in complaint] == []


def test_an_application_that_answers_no_queries_says_so(browser: Chromium) -> None:
    application, _ = under_load()
    with served(application) as url:
        opened(browser, url)
        browser.run("document.querySelector('[data-browse]').click()")
        browser.wait_for("document.querySelector('#browser-says').textContent")
        assert text(browser, "#browser-says").startswith("The application does not support this query")
        assert browser.run("document.querySelector('#more').hidden")


class Copy(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record)


def hostile() -> Topology:
    """A topology with hostile node names; `Topology` refuses such names of topics and stores."""
    name = ATTACK.format("node") + TURNED
    topology = Topology().add_source(ATTACK.format("source") + TURNED, "in")
    topology.add_processor(name, Copy, ATTACK.format("source") + TURNED).add_sink("__proto__", "out", name)
    return topology.add_state_store(key_value_store("kept"), name)


def test_names_and_keys_that_look_like_code_are_shown_as_text(browser: Chromium) -> None:
    application = FakeApplication(topology=hostile(), application_id=ATTACK.format("id"))
    Feeder(application).history(30)
    value = {"<script>window.harmed='value'</script>": ATTACK.format("value")}
    entries = [{"key": ATTACK.format("key") + TURNED, "value": value}]
    with served(application, *store_routes(entries)) as url:
        opened(browser, url)
        browser.run("document.querySelector('[data-browse]').click()")
        browser.wait_for("document.querySelectorAll('#entries tr').length === 1")
        browser.run("document.querySelector('#browser').close(); document.querySelector('#epochs').focus()")
        browser.press("ArrowLeft")
        browser.rest(2.5)
        assert browser.run("window.harmed") is None
        assert browser.run("document.querySelectorAll('img, script:not([src]), iframe').length") == 0
        shown = str(browser.run("document.body.innerText"))
        assert ATTACK.format("id") in shown
        assert ATTACK.format("key") in text(browser, "#entries")
        everything = str(browser.run("document.documentElement.textContent"))
        titles = str(browser.run("[...document.querySelectorAll('[title]')].map((one) => one.title).join()"))
        assert "\u202e" not in shown + titles + text(browser, "#entries"), "text cannot be reversed"
        assert "/s · " in everything, "names that XML and JavaScript treat as special are still found"
    assert browser.complaints == []


def test_the_token_is_requested_and_kept_in_the_tab_only(browser: Chromium) -> None:
    application, _ = under_load()
    with served(application, token="sesame-sesame-sesame") as url:
        browser.open(f"{url}/")
        browser.wait_for("document.querySelector('#door').open")
        assert text(browser, "#application") == "…", "nothing is shown without it"
        browser.write("wrong")
        browser.run("document.querySelector('#unlock').requestSubmit()")
        browser.wait_for("document.querySelector('#door-says').textContent === 'Wrong token.'")
        browser.write("sesame-sesame-sesame")
        browser.run("document.querySelector('#unlock').requestSubmit()")
        browser.wait_for("document.querySelectorAll('#epochs g').length")
        assert not browser.run("document.querySelector('#door').open")
        assert browser.run("localStorage.length + document.cookie.length") == 0
        assert browser.run("location.href") == f"{url}/"
    refused = [complaint for complaint in browser.complaints if "401" not in complaint and "ERR_CONNECTION" not in complaint]
    assert refused == []


def test_without_responses_the_page_says_how_old_its_data_is(browser: Chromium) -> None:
    application, _ = under_load()
    with served(application) as url:
        opened(browser, url)
        assert browser.run("document.querySelector('#stale').hidden")
    browser.wait_for("!document.querySelector('#stale').hidden")
    said = text(browser, "#stale")
    assert said.startswith("Data as of ")
    assert said.endswith("No new data from the application: it does not respond.")
    assert time.strftime("%H:%M") in said or time.strftime("%H:%M", time.localtime(time.time() - 60)) in said
    assert text(browser, "#state") == "unknown"
    assert browser.run("document.title").startswith("(no response) ")


def test_problems_and_a_restore_are_shown_in_words(browser: Chromium) -> None:
    application = FakeApplication(state=State.REBALANCING, epoch=-1)
    application.recorder.restoring({0: 900_000, 1: 100_000})
    application.recorder.restoring({0: 250_000, 1: 0})
    with served(application) as url:
        browser.open(f"{url}/")
        browser.wait_for("document.querySelector('#problems li')")
        assert text(browser, "#problems").startswith("restoring750000 of 1000000 records (75%)")
        assert "75 % · 750,000 of 1,000,000 records" in text(browser, "#restored-words")
        assert browser.run("document.querySelector('#restored').value") == 0.75
        application.recorder.restored()
        application.state = State.ERROR
        browser.wait_for("document.querySelector('#problems li.bad')")
        assert text(browser, "#problems").startswith("failed")
        assert browser.run("document.querySelector('#restore').hidden")
    assert [complaint for complaint in browser.complaints if "ERR_CONNECTION" not in complaint] == []
