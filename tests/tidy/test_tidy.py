"""The house rules, applied to every file that git tracks or would track."""

from __future__ import annotations

import pytest

from tests.tidy.repository import ROOT, files
from tests.tidy.rules import MODULE_LINES_USUAL, RULES, Rule, matches


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_house_rule(rule: Rule) -> None:
    complaints = [complaint for file in files() for complaint in rule(file)]
    assert not complaints, "\n" + "\n".join(complaints)


def test_nine_of_ten_modules_have_a_usual_size() -> None:
    sizes = {str(file.path): len(file.text.splitlines()) for file in files() if file.is_product and file.path.parts[2] != "dsl"}
    long = {path: lines for path, lines in sizes.items() if lines > MODULE_LINES_USUAL}
    assert len(long) * 10 <= len(sizes), (
        f"{len(long)} of {len(sizes)} modules have more than {MODULE_LINES_USUAL} lines: {long}. Cure: split by subject."
    )


def test_documents_link_to_files_that_exist() -> None:
    documents = [file for file in files() if file.path.suffix == ".md"]
    links = [(file, line, text) for file in documents for line, text in matches(file, r"(?<=\]\()(?![a-z]+:|#)[^)\s#]+")]
    broken = [
        file.at(line, f"{text} does not exist.") for file, line, text in links if not (ROOT / file.path.parent / text).exists()
    ]
    assert not broken, "\n" + "\n".join(broken)
    assert len(links) > len(documents)


def test_the_rules_see_the_product() -> None:
    assert any(file.is_product for file in files())
