"""The sentences and tests of a report, on numbers small enough to check by hand."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from plotly.offline import get_plotlyjs

from fedcohort.report import write_report
from fedcohort.report.curves import accuracy_cards, entropy_card, fairness_card
from fedcohort.report.evidence import Evidence, Labels, Run
from fedcohort.report.luck import luck_card
from fedcohort.report.page import Led, Page, Tab, render
from fedcohort.report.sent import label_counts, sent_cards
from fedcohort.report.served import paragraph, sentences, served_cards
from fedcohort.report.service import Service, worst_tenth
from fedcohort.report.standings import against_leader, copies_of, headline, leaderboard_card, standings_of
from fedcohort.report.style import look, plain, plain_each, thinned
from support.report_evidence import CLASSES, a_run, evidence_of
from support.report_runs import a_home, large_run

# Who is badly served ----------------------------------------------------------------------------------------


def test_luck_is_no_bad_service() -> None:
    """12 of 40 right where 90 % are: never luck. 0 of 1: one time in ten."""
    run = a_run()
    assert Service(evidence_of(run), run).bad == [0]
    fair = replace(run, accuracy=np.array([0.9, 0.0, 1.0, 0.95]))
    assert Service(evidence_of(fair), fair).bad == []
    assert any(
        "No client is served worse than luck" in text for text in sentences(Service(evidence_of(fair), fair))
    )


def test_the_limit_of_luck_is_where_clients_are_named() -> None:
    """Of made-up clients with 1 to 60 test samples, those not above the line of the chart, and no others."""
    rng = np.random.default_rng(0)
    size = rng.integers(1, 61, 200).astype(float)
    right = rng.binomial(size.astype(int), np.where(np.arange(200) < 40, 0.5, 0.85))
    names = tuple(map(str, range(200)))
    run = a_run(accuracy=0.8, clients=names, test_size=size, group=np.zeros(200, dtype=np.int64))
    run = replace(run, accuracy=right / size)
    service = Service(Evidence((run,), {"data0": "withheld"}), run)
    assert 10 < len(service.bad) < 60
    below = np.floor(size * service.limit(size) + 1e-9) >= right
    assert np.flatnonzero(below).tolist() == sorted(service.bad)
    assert service.limit(np.array([1.0]))[0] < 0  # one wrong answer proves nothing
    chart = luck_card(service, 1).figure
    assert chart is not None
    assert len(chart.data[-1].x) == len(service.bad)
    assert sum(bool(text) for text in chart.data[-1].text) == 4


def test_one_badly_served_client_is_one_of_all() -> None:
    run = a_run()
    service = Service(evidence_of(run), run)
    _, _, many, told = sentences(service)
    assert many == "1 of 4 clients is served worse than luck explains."
    assert isinstance(told, Led)
    assert told.lead == "a:"


def test_every_client_that_is_named_is_explained() -> None:
    """Six are served badly: four in sentences, and all of them in the table, each with its reason."""
    names = tuple("abcdefgh")
    run = replace(
        a_run(),
        clients=names,
        group=np.zeros(8, dtype=np.int64),
        accuracy=np.array([0.2, 0.3, 0.3, 0.3, 0.3, 0.3, 1.0, 1.0]),
        test_size=np.full(8, 40.0),
        visits=np.array(
            [[n, client, 0, 1] for client in range(8) for n in range(1, 2 if client == 7 else 4)]
        ),
    )
    table = np.array([[2, 38], *[[40, 0]] * 5, [20, 0], [40, 0]], dtype=float)
    evidence = Evidence((run,), {"data0": Labels(table, names, CLASSES)})
    told = sentences(Service(evidence, run))
    assert str(told[-5]).endswith("luck explains; 4 of them here, the others in the table below.")
    assert [each.lead for each in told if isinstance(each, Led)] == ["a:", "b:", "c:", "d:"]
    rows = served_cards(evidence, run)[2].table.rows
    assert [row[0] for row in rows[:6]] == ["a", "b", "c", "d", "e", "f"]
    assert {row[-1] for row in rows[:1]} == {"its classes are hard ones"}
    assert {row[-1] for row in rows[1:6]} == {"not its labels"}
    assert {row[-1] for row in rows[6:]} == {"may be luck"}


def test_nobody_is_to_be_selected_where_everybody_trains() -> None:
    run = a_run(visits=np.array([[n, client, 0, 1] for n in range(1, 5) for client in range(4)]))
    assert run.everybody
    assert not a_run().everybody
    text = paragraph(Service(evidence_of(run), run), 0)
    assert "fedentopt" not in text
    assert "Try margins for rare classes (fedlc), or class weights (balanced)." in text


def test_hard_classes_explain_a_client_that_holds_them() -> None:
    """2 x and 38 y, recognised in 100 % and 40 %: 0.05 + 0.95 * 0.4 = 43 % are to be expected."""
    run = a_run()
    service = Service(evidence_of(run), run)
    assert service.expected[0] == pytest.approx(0.43)
    text = paragraph(service, 0)
    assert text.startswith("30% of its 40 test samples are right (95 %: 18% to 45%). It holds 95% 'y'")
    assert "(the rest of the federation: 1%)" in text  # 1 of 100
    assert "Its classes are the hard ones: by them alone one would expect 43%." in text
    assert "fedentopt" in text


def test_easy_classes_do_not_explain_it() -> None:
    run = a_run()
    service = Service(evidence_of(run, counts=[[40, 0], [20, 0], [40, 0], [39, 1]]), run)
    text = paragraph(service, 0)
    assert "do not explain that: recognised as well as everywhere they would give 100%" in text
    assert "diagnose --features" in paragraph(service, 0)


def test_a_group_that_does_not_suit_is_named() -> None:
    """a holds y like c and d of group 1, but is with b, who holds x."""
    run = a_run(group=np.array([0, 0, 1, 1]))
    service = Service(evidence_of(run, counts=[[0, 10], [10, 0], [0, 10], [0, 10]]), run)
    group, near, own = service.nearer(0) or (None, None, None)
    assert (group, near, own) == (1, 0.0, 1.0)
    text = paragraph(service, 0)
    assert "nearer to group 1 (Hellinger distance 0.00) than to the rest of its own group 0 (1.00)" in text
    assert "clust_psi_pfl" in text
    assert service.nearer(2) is None
    assert "No other group suits its labels clearly better than group 1." in paragraph(service, 2)
    alone = a_run(group=np.array([0, 1, 1, 1]))
    text = paragraph(Service(evidence_of(alone), alone), 0)
    assert "It is alone in group 0." in text
    assert "nan" not in text


def test_another_method_is_named_only_if_clearly_better() -> None:
    """30 % against 80 % of 40 samples is 5 standard errors; 0 against 100 % of one sample is one guess."""
    run = a_run()
    other = a_run("ifca", accuracy=0.85)
    other = replace(other, accuracy=np.array([0.8, 0.0, 0.5, 0.99]))
    service = Service(evidence_of(run, other), run)
    assert paragraph(service, 0).endswith("Try ifca, which gets 80% here.")
    assert service.best_elsewhere(3) is None
    alone = replace(other, home=a_home("local_only"), title="local_only")
    assert "better off alone: local_only gets 80%" in paragraph(Service(evidence_of(run, alone), run), 0)


def test_methods_are_compared_by_how_many_they_serve_badly() -> None:
    """fedavg fails a, ifca fails a and c, fedprox nobody."""
    serves = {"fedavg": [0.3, 1, 1, 0.95], "ifca": [0.3, 1, 0.4, 0.9], "fedprox": [0.9, 1, 0.9, 0.9]}
    runs = [replace(a_run(name), accuracy=np.array(accuracy)) for name, accuracy in serves.items()]
    told = "Clients served worse than luck explains: 2 with ifca, 1 with fedavg; none with fedprox."
    for run in runs:
        assert told in sentences(Service(evidence_of(*runs), run))
    assert not any("none with" in text for text in sentences(Service(evidence_of(runs[0]), runs[0])))


def test_a_client_that_rarely_trains_is_told() -> None:
    """b never trained; the median of 1, 0, 2, 2 is 1.5."""
    run = a_run(accuracy=0.9)
    service = Service(evidence_of(run), run)
    assert run.trained.tolist() == [1, 0, 2, 2]
    assert "It trained in 0 rounds only (median 2)." in paragraph(service, 1)


def test_without_labels_there_are_sentences_still() -> None:
    run = a_run()
    service = Service(evidence_of(run, counts="withheld"), run)
    assert np.isnan(service.expected).all()
    assert "qfedavg" in paragraph(service, 0)


def test_the_worst_tenth_is_at_least_one_client() -> None:
    assert worst_tenth(np.array([0.5, np.nan, 0.1, 0.9])) == 0.1
    assert worst_tenth(np.linspace(0.05, 1, 20)) == pytest.approx(0.075)
    assert math.isnan(worst_tenth(np.array([np.nan])))


# Which method is better -------------------------------------------------------------------------------------


def test_the_headline_says_how_sure_it_is() -> None:
    def runs(seeds: int, gap: float) -> Evidence:
        pairs = [(a_run("fedavg", s, 0.9 + 0.001 * s), a_run("fedprox", s, 0.9 - gap)) for s in range(seeds)]
        return evidence_of(*(run for pair in pairs for run in pair))

    assert "significantly ahead of every other method" in headline(runs(4, 0.2))
    assert "but it is not surely better than any other method" in headline(runs(3, -0.0009))
    assert "fewer than 3 common seeds" in headline(runs(2, 0.2))
    assert against_leader(runs(2, 0.2), standings_of(runs(2, 0.2))) == {}


def test_a_method_that_went_like_another_is_no_further_test() -> None:
    """fedlecc had fedavg's very losses in all seeds, fedprox in all but the last."""

    def run(method: str, seed: int, accuracy: float, loss: float) -> Run:
        curves = {"global.loss": (np.array([1.0, 2.0]), np.array([2.0, loss]))}
        return a_run(method, seed, accuracy, curves=curves)

    runs = [run(method, s, 0.9 + s / 100, 1 + s) for s in range(3) for method in ("fedavg", "fedlecc")]
    runs += [run("fedprox", s, 0.5, 1 + s - (s == 2) / 1e9) for s in range(3)]
    evidence = evidence_of(*runs)
    assert copies_of(evidence, standings_of(evidence)) == {"fedlecc": "fedavg"}
    assert list(against_leader(evidence, standings_of(evidence))) == ["fedprox"]
    headline_, copy = leaderboard_card(evidence).sentences
    assert isinstance(headline_, str)
    assert "fedlecc" not in headline_
    assert copy == "fedlecc gave exactly the losses of fedavg in every seed, so the two count as one."
    assert copies_of(evidence_of(*runs[:4], *runs[5:]), standings_of(evidence)) == {}  # of other seeds


def test_methods_that_trained_more_clients_are_named() -> None:
    """Eight clients a round against three; 3.2 against three is no news, and a reference has other rules."""
    few, more, same = (
        a_run(title, metrics={"global.accuracy": 0.9, "clients_per_round": clients})
        for title, clients in (("fedavg", 3.0), ("clust_psi_pfl", 8.0), ("fedprox", 3.2))
    )
    (said,) = [each for each in leaderboard_card(evidence_of(few, more, same)).sentences if "a round" in each]
    assert said.startswith("clust_psi_pfl trained 8 clients a round, fedavg 3:")
    alone = a_run("centralised", metrics={"global.accuracy": 0.9, "clients_per_round": 1.0})
    for others in ((few, same), (few, alone)):
        assert not any("a round" in each for each in leaderboard_card(evidence_of(*others)).sentences)


def test_groups_that_were_never_merged_are_no_fedconcat() -> None:
    """Four rounds: enough for three of groups and one of the layer on top, not for four of groups."""
    short, long = (a_run(f"fedconcat(rounds={rounds})") for rounds in (4, 3))
    said = leaderboard_card(evidence_of(short)).sentences
    assert any("merges its groups' models after 4 rounds, and 4 are too few" in each for each in said)
    assert len(leaderboard_card(evidence_of(long)).sentences) == len(said) - 1


def test_what_needs_all_data_in_one_place_never_leads() -> None:
    runs = a_run("fedavg", 0, 0.5), a_run("centralised", 0, 0.99)
    assert [standing.method for standing in standings_of(evidence_of(*runs))] == ["fedavg", "centralised"]
    several = [
        run for s in range(4) for run in (a_run("fedavg", s, 0.5), a_run("centralised", s, 0.9 + s / 1000))
    ]
    text = headline(evidence_of(*several))
    assert text.startswith("fedavg is best by global accuracy (centralised aside, for reference), 50.0%")
    assert "significant" not in text


def test_training_alone_leads_where_it_is_best() -> None:
    runs = a_run("fedavg", 0, 0.5), a_run("local_only", 0, 0.6)
    assert [standing.method for standing in standings_of(evidence_of(*runs))] == ["local_only", "fedavg"]


def test_only_methods_are_emphasised_and_cost_something() -> None:
    """Whoever pools all data has the best accuracy, and who is alone sends least: neither is a finding."""
    curves = {"global.accuracy": (np.array([1.0, 2.0]), np.array([0.4, 0.5]))}
    curves |= {key: (np.array([1.0, 2.0]), np.array([1e6, 2e6])) for key in ("bytes_up", "bytes_down")}
    runs = [a_run(name, 0, 0.5, curves=curves) for name in ("fedavg", "centralised", "local_only", "fedprox")]
    evidence = evidence_of(*runs)
    assert evidence.references == {"centralised", "local_only"}
    table = leaderboard_card(evidence).table
    assert table is not None
    assert {table.rows[row][0] for row, _ in table.strong} <= {"fedavg", "fedprox"}
    by_round, by_bytes = accuracy_cards(evidence)
    assert {trace.name for trace in by_round.figure.data} == {run.title for run in runs}
    assert {trace.name for trace in by_bytes.figure.data} == {"fedavg", "fedprox"}
    assert [*by_bytes.figure.data[0].x] == [2, 4]  # MB, up and down
    assert by_bytes.sentences == [
        "Megabytes until 50.0%, which every method reaches: fedavg 4.00, fedprox 4.00."
    ]


def test_runs_that_go_on_are_not_tested_against_others() -> None:
    """Three seeds of each, but one method is still in its first rounds."""
    runs = [a_run("fedavg", s, 0.9 + s / 100) for s in range(3)]
    runs += [a_run("fedprox", s, 0.2, complete=False) for s in range(3)]
    evidence = evidence_of(*runs)
    assert against_leader(evidence, standings_of(evidence)) == {}
    assert any("Not all runs are complete" in text for text in leaderboard_card(evidence).sentences)


# What left each client --------------------------------------------------------------------------------------


def test_what_a_client_tells_follows_from_the_method() -> None:
    """The logistic model has 5 * 4 weights and 4 biases of 4 bytes; each label count takes 8 bytes more."""
    fedavg, clustered = (
        {row[0]: row for row in sent_cards(evidence_of(a_run(method)))[1].table.rows}
        for method in ("fedavg", "clust_psi_pfl")
    )
    assert "delta (96 bytes)" in fedavg["training"][2]
    assert int(clustered["profile"][3]) - int(fedavg["profile"][3]) == 8 * 4
    assert "label counts" in clustered["profile"][2]
    _, pooled = sent_cards(evidence_of(a_run("centralised")))
    assert pooled.table is None


def test_how_often_each_client_sent_its_update() -> None:
    """a was chosen twice, and its second update was not used. An update is 96 bytes and 28 beside it."""
    _, _, updates = sent_cards(evidence_of(a_run()))
    assert updates.tags == {"method": "fedavg", "seed": "0"}
    assert [row[:3] for row in updates.table.rows] == [
        ["c", "2", "2"],
        ["d", "2", "2"],
        ["a", "2", "1"],
        ["b", "0", "0"],
    ]
    assert [row[3] for row in updates.table.rows] == ["0.2 kB", "0.2 kB", "0.1 kB", "0.0 kB"]
    assert len(sent_cards(evidence_of(a_run("local_only")))) == 2  # nobody sends one


def test_how_label_counts_left() -> None:
    assert label_counts(a_run("fedavg")) == "not asked for"
    assert label_counts(a_run("clust_psi_pfl")) == "exact"
    noised = a_run(
        "clust_psi_pfl", home=a_home("clust_psi_pfl", privacy={"counts": "noised", "epsilon": 0.25})
    )
    assert label_counts(noised) == "noised (epsilon 0.25)"


def test_what_did_not_leave_is_said_with_its_exceptions() -> None:
    first, *_ = sent_cards(evidence_of(a_run("centralised"), a_run("fedavg")))
    text = " ".join(first.sentences)
    assert "With centralised all examples leave" in text
    assert "With the other methods no example leaves its client." in text


# Charts -----------------------------------------------------------------------------------------------------


def test_names_in_charts_are_escaped_short_and_distinct() -> None:
    assert plain("<b>&") == "&lt;b&gt;&amp;"
    assert len(plain("n" * 100)) == 40
    assert plain_each(["n" * 50, "m", "n" * 60]) == [plain("n" * 50), "m", plain("n" * 50) + " (2)"]


def test_thirty_methods_look_different() -> None:
    assert len({(look(number)["color"], look(number)["dash"]) for number in range(30)}) == 30


def test_shares_of_clients_go_from_nobody_to_everybody() -> None:
    """Accuracies 0, 0.3, 0.95 and 1: a quarter of the clients is added at each."""
    card = fairness_card(evidence_of(a_run()))
    assert card is not None
    (line,) = card.figure.data
    assert line.x.tolist() == pytest.approx([0, 0, 0.3, 0.95, 1, 1])
    assert line.y.tolist() == [0, 0.25, 0.5, 0.75, 1, 1]


def test_the_entropy_of_even_labels_is_drawn_if_known() -> None:
    """Two classes: one bit."""
    run = a_run(curves={"cohort_entropy": (np.array([1.0, 2.0]), np.array([0.4, 0.5]))})
    card = entropy_card(evidence_of(run))
    assert card is not None
    assert [*card.figure.data[-1].y] == [1, 1]
    assert "thin line" in card.about
    withheld = entropy_card(evidence_of(run, counts="withheld"))
    assert withheld is not None
    assert len(withheld.figure.data) == 1
    assert "thin line" not in withheld.about


def test_thinned_keeps_the_ends() -> None:
    assert thinned(5, 10).tolist() == [0, 1, 2, 3, 4]
    many = thinned(100_000, 400)
    assert (len(many), many[0], many[-1]) == (400, 0, 99_999)


def test_a_page_asks_nobody_for_anything() -> None:
    text = render(Page("<t>", "s & t", [Tab("only", "Only", [])])).replace(get_plotlyjs(), "")
    assert "default-src 'none'" in text
    assert "&lt;t&gt;" in text
    assert "http" not in text.replace("http-equiv", "")


@pytest.mark.deploy
def test_a_large_report_is_small(large: Path, tmp_path: Path) -> None:
    """Of one run of 1,000 clients and 500 rounds, and of six methods with three seeds of that size."""
    library = len(get_plotlyjs().encode())
    assert large.stat().st_size - library < 1_000_000
    methods = ("fedavg", "fedprox", "cfl", "fedgwc", "fednova", "ifca")
    runs = [large_run(tmp_path, method, seed, cohort=20) for method in methods for seed in range(3)]
    page = write_report(runs, tmp_path / "report.html")
    assert page.stat().st_size - library < 5_000_000
