"""The parity page: nothing in it is stale, every method of Kafka Streams is judged, and the page on disk is up to date."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from verification.conformance import parity
from verification.conformance.coverage import features
from verification.conformance.generator import generate
from verification.conformance.parity import settings
from verification.conformance.parity.method_map import MAPPING
from verification.conformance.parity.page import counts, markdown, rows, verbs
from verification.conformance.parity.penstock_names import StaleNameError, call, resolve
from verification.conformance.parity.reflection import ReflectionError, load, save
from verification.conformance.parity.rules import DEPRECATED, OBJECT_PROTOCOL, Method, Missing, Never, Rule, To, judge

METHODS = load()


def method(name: str, *parameters: str, owner: str = "kstream.KStream", deprecated: bool = False) -> Method:
    return Method(owner, name, parameters, "KStream", static=False, deprecated=deprecated)


def test_every_name_in_the_mapping_exists_in_penstock() -> None:
    assert len(rows(METHODS, MAPPING)) == len(METHODS)


def test_the_page_on_disk_is_what_is_generated() -> None:
    assert parity.PAGE.read_text() == markdown(rows(METHODS, MAPPING)), "run `make parity`"


def test_counts_add_up() -> None:
    total = counts(rows(METHODS, MAPPING))
    assert total["methods"] == total["mapped"] + total["never"] + total["missing"] == len(METHODS)
    assert total["mapped"] > 500


def test_every_class_of_the_mapping_is_one_of_kafka_streams() -> None:
    assert set(MAPPING) <= {each.owner for each in METHODS}


def test_every_method_has_a_rule() -> None:
    forgotten = [each for each in METHODS if judge(each, MAPPING) == judge(each, {}) and isinstance(judge(each, {}), Missing)]
    assert forgotten == []


def test_the_generator_makes_every_verb_that_the_page_names() -> None:
    known = {feature for case in generate(1, 400) for op in case.ops for feature in features(op)}
    assert verbs(rows(METHODS, MAPPING)) <= known


def test_a_call_is_rendered_in_the_order_of_penstocks_signature() -> None:
    to = To("penstock.KStream.map_values")
    assert call(method("mapValues", "Named", "ValueMapperWithKey"), to) == "KStream.map_values(mapper, name=…, with_key=True)"


def test_repeated_types_are_distinguished_by_their_order() -> None:
    to = To("penstock.KGroupedTable.reduce", {"Reducer": ("adder", "subtractor")})
    assert call(method("reduce", "Reducer", "Reducer"), to) == "KGroupedTable.reduce(adder, subtractor)"


def test_stars_attributes_and_bare_names() -> None:
    assert call(method("split"), To("penstock.KStream.split", fixed="predicates, named")) == "KStream.split(*predicates, **named)"
    assert call(method("key"), To("penstock.Record.key")) == "Record.key"
    assert call(method("defaultBranch"), To("penstock.otherwise", bare=True)) == "otherwise"
    assert resolve("penstock.TimeWindowed.inner") is None


@pytest.mark.parametrize(
    ("to", "complaint"),
    [
        (To("penstock.KStream.gone"), "no 'gone'"),
        (To("penstok.KStream"), "no such module"),
        (To("penstock.KStream.filter", fixed="mapper"), "no argument 'mapper'"),
        (To("penstock.KStream.filter", fixed="name"), "no argument 'name'"),
        (To("penstock.KStream.filter", fixed="store="), "no keyword argument 'store'"),
        (To("penstock.KStream.join", fixed="nonsense="), "no keyword argument 'nonsense'"),
        (To("penstock.Record.key", fixed="name="), "takes no arguments"),
    ],
)
def test_stale_names_are_refused(to: To, complaint: str) -> None:
    with pytest.raises(StaleNameError, match=complaint):
        call(method("filter"), to)


def test_a_parameter_without_an_equivalent_is_refused() -> None:
    with pytest.raises(StaleNameError, match="Novelty has no equivalent"):
        call(method("filter", "Novelty"), To("penstock.KStream.filter"))


def test_all_stale_names_are_reported_at_once() -> None:
    rules = {"kstream.KStream": (Rule("one two", To("penstock.gone")),)}
    with pytest.raises(StaleNameError, match=r"one\(\)(.|\n)*two\(\)"):
        rows([method("one"), method("two")], rules)


def test_the_first_rule_that_covers_a_method_judges_it() -> None:
    two, one = Never("two"), Never("one")
    rules = {"kstream.KStream": (Rule("f", two, ("Object", "Object")), Rule("f g", one))}
    assert judge(method("f", "Object", "Object"), rules) is two
    assert judge(method("f", "Object"), rules) is one
    assert judge(method("g", "Object", "Object"), rules) is one
    assert isinstance(judge(method("h"), rules), Missing)
    assert judge(method("f", deprecated=True), rules) is DEPRECATED
    assert judge(method("equals", "Object"), rules) is OBJECT_PROTOCOL


def test_saved_methods_are_loaded_unchanged(tmp_path: Path) -> None:
    save(METHODS[:5], tmp_path / "methods.json")
    assert load(tmp_path / "methods.json") == METHODS[:5]


def test_every_setting_of_kafka_streams_has_an_equivalent_or_a_reason() -> None:
    assert set(settings.SETTINGS) == set(settings.load())


def test_a_setting_that_penstock_does_not_have_is_refused() -> None:
    assert settings.said("state.dir", settings.Becomes("state_dir", "a directory")) == "`state_dir`, a directory"
    with pytest.raises(StaleNameError, match="no setting state_directory"):
        settings.said("state.dir", settings.Becomes("state_directory"))


class TestMain:
    """The command, with the saved methods in place of Java."""

    @pytest.fixture(autouse=True)
    def _places(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(parity, "reflect", load)
        monkeypatch.setattr(parity, "reflect_settings", settings.load)
        monkeypatch.setattr(settings, "save", lambda names: None)
        monkeypatch.setattr(parity, "save", lambda methods: None)
        monkeypatch.setattr(parity, "ROOT", tmp_path)
        monkeypatch.setattr(parity, "METHODS", tmp_path / "methods.json")
        monkeypatch.setattr(parity, "PAGE", tmp_path / "docs" / "parity.md")
        monkeypatch.setattr(parity, "REPORT", tmp_path / "reports" / "parity.json")
        monkeypatch.setattr(parity, "CONFORMANCE", tmp_path / "reports" / "conformance.json")
        monkeypatch.setattr(parity, "MAPPING", {})
        monkeypatch.setattr(parity, "load", load)

    @pytest.fixture
    def _one_method(self, monkeypatch: pytest.MonkeyPatch) -> None:
        kept = [method("filter", "Predicate")]
        monkeypatch.setattr(parity, "reflect", lambda: kept)
        monkeypatch.setattr(parity, "load", lambda: kept)
        monkeypatch.setattr(
            parity, "MAPPING", {"kstream.KStream": (Rule("filter", To("penstock.KStream.filter", {}, ("a_verb",))),)}
        )

    @pytest.mark.usefixtures("_one_method")
    def test_writes_page_and_report(self) -> None:
        assert parity.main([]) == 0
        assert "`KStream.filter(predicate)`" in parity.PAGE.read_text()
        assert json.loads(parity.REPORT.read_text()) == {"methods": 1, "mapped": 1, "never": 0, "missing": 0}

    @pytest.mark.usefixtures("_one_method")
    def test_check_compares_with_the_page_and_writes_none(self) -> None:
        assert parity.main(["--check"]) == 1
        assert not parity.PAGE.exists()
        parity.main([])
        assert parity.main(["--check"]) == 0
        parity.PAGE.write_text("old")
        assert parity.main(["--check"]) == 1

    @pytest.mark.usefixtures("_one_method")
    def test_check_finds_methods_out_of_date(self, monkeypatch: pytest.MonkeyPatch) -> None:
        parity.main([])
        monkeypatch.setattr(parity, "load", list)
        assert parity.main(["--check"]) == 1

    @pytest.mark.usefixtures("_one_method")
    def test_check_finds_settings_out_of_date(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        parity.main([])
        monkeypatch.setattr(parity, "reflect_settings", lambda: ["application.id", "novelty.ms"])
        assert parity.main(["--check"]) == 1
        assert "settings.json differs from the jars" in capsys.readouterr().out

    @pytest.mark.usefixtures("_one_method")
    @pytest.mark.parametrize(("cases", "count", "code"), [(2000, 0, 1), (2000, 3, 0), (10, 0, 0)])
    def test_a_verb_that_a_full_run_did_not_exercise_fails(self, cases: int, count: int, code: int) -> None:
        parity.CONFORMANCE.parent.mkdir()
        parity.CONFORMANCE.write_text(json.dumps({"cases": cases, "verbs": {"a_verb": count}}))
        assert parity.main([]) == code

    def test_a_missing_method_fails_and_is_named(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert parity.main([]) == 1
        assert "missing: kstream.KStream.filter(Predicate)" in capsys.readouterr().out

    def test_without_java_it_fails(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        def no_java() -> list[Method]:
            raise ReflectionError("there is no java")

        monkeypatch.setattr(parity, "reflect", no_java)
        assert parity.main([]) == 1
        assert "there is no java" in capsys.readouterr().err

    def test_reflect_only_reads_the_jars(self) -> None:
        assert parity.main(["--reflect"]) == 0
        assert not parity.PAGE.exists()
