import pytest

from fedcohort.util.names import LONGEST, in_markdown, safe_name, safe_names


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("St. Mary's", "St. Mary's"),
        (" ward 3 ", "ward 3"),
        ("a\nERROR all is lost", "a\\x0aERROR all is lost"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\u202egnirts", "\\x202egnirts"),
        ("\ud800", "\\xd800"),
        ('=HYPERLINK("http://x")', '\'=HYPERLINK("http://x")'),
        ("\uff1d1+1", "'\uff1d1+1"),  # a wide sign, as in Japanese
        ("@SUM(A1)", "'@SUM(A1)"),
        ("-1", "-1"),
        ("+49 30", "'+49 30"),
        ("-2+3", "'-2+3"),
    ],
)
def test_a_name_is_one_harmless_cell(given, shown):
    assert safe_name(given) == shown
    assert safe_name(shown) == shown


def test_a_name_is_no_longer_than_a_report_can_show():
    assert len(safe_name("9" * 5000)) == LONGEST
    assert len(safe_name("=" * 5000)) <= LONGEST + 1


def test_names_that_would_look_the_same_are_told_apart():
    assert safe_names(["a\x1b", "a\\x1b", "b"]) == ["a\\x1b #1f858a18", "a\\x1b", "b"]


def test_markdown_shows_a_name_and_nothing_else():
    given = "![a](http://x) <script> `b` | c\\d fedprox(mu=0.1)_x"
    assert in_markdown(given) == r"!\[a\](http://x) \<script> \`b\` \| c\\d fedprox(mu=0.1)_x"
