"""Which cards make up the report of a diagnosis."""

from collections.abc import Mapping

import numpy as np

from fedcohort.diagnosis.diagnosis import Diagnosis
from fedcohort.diagnosis.features import HOW_TO_READ, FeatureSkew, most
from fedcohort.report.labels import CLIENTS, client_map, label_map, left_out, psi_card, rows_allowed
from fedcohort.report.page import Card, Filter, Page, Tab, TextTable
from fedcohort.report.style import figure, look, small, thinned
from fedcohort.stats.label_distances import hellinger_points
from fedcohort.stats.label_groups import Suggestion

LISTED = 100  # clients or attributes in a table


def diagnosis_page(diagnosis: Diagnosis, features: FeatureSkew | None = None) -> Page:
    """What label counts tell, and attributes where they were compared too."""
    verdict, size = diagnosis.verdict, diagnosis.size
    names, classes = diagnosis.client_names, diagnosis.class_names
    subtitle = f"{len(names):,} clients · {len(classes)} classes · {size.sum():,.0f} samples"
    cards = [
        Card("Verdict", sentences=[*verdict.sentences, *verdict.notes]),
        _measures(diagnosis),
        *(card for suggestion in diagnosis.suggestions for card in _charts(diagnosis, suggestion)),
        *([_number_of_groups(diagnosis.silhouettes)] if diagnosis.silhouettes else []),
        psi_card(diagnosis.counts, names, classes, {}),
        _clients(diagnosis),
        *([] if features is None else [_attributes(features)]),
    ]
    readings = [(item.reading, item.rule) for item in diagnosis.suggestions]
    filters = (Filter("grouping", "Groups by", readings),)
    return Page("fedcohort diagnosis", subtitle, (Tab("labels", "Labels", cards, filters),))


def _charts(diagnosis: Diagnosis, suggestion: Suggestion) -> list[Card]:
    """Labels and map, by one reading of who belongs together."""
    names, size, group = diagnosis.client_names, diagnosis.size, suggestion.labels
    limit = rows_allowed(len(diagnosis.class_names), len(diagnosis.suggestions))
    shown = thinned(len(names), CLIENTS)
    hover = [f"{size[k]:,.0f} samples, PSI {_number(diagnosis.psi[k])}" for k in shown]
    points = hellinger_points(diagnosis.counts)[shown]
    return [
        Card(
            "Labels of the clients",
            "Each row is a client, suggested groups one below the other. A cell is the share of the client's "
            "samples of that class." + left_out(len(names), limit),
            figure=label_map(diagnosis.counts, names, diagnosis.class_names, group, limit),
            tags={"grouping": suggestion.reading},
        ),
        Card(
            "Map of the clients",
            "Clients with similar labels lie close together (principal components of the square roots of "
            "label shares). Colour: suggested group. Area: samples." + left_out(len(names), CLIENTS),
            figure=client_map(points, [names[k] for k in shown], group[shown], size[shown], hover),
            tags={"grouping": suggestion.reading},
        ),
    ]


def _number_of_groups(silhouettes: Mapping[str, Mapping[int, float]]) -> Card:
    import plotly.graph_objects as go

    best = {
        method: max(tried, key=lambda k: (round(tried[k], 9), -k)) for method, tried in silhouettes.items()
    }
    traces = [
        go.Scatter(
            x=list(tried),
            y=small(list(tried.values())),
            name=method,
            line=look(number),
            mode="lines+markers",
            marker={"size": [11 if k == best[method] else 4 for k in tried]},
            hovertemplate=f"{method}, %{{x}} groups: %{{y:.3f}}<extra></extra>",
        )
        for number, (method, tried) in enumerate(silhouettes.items())
    ]
    chosen = (f"{method}: {count} of up to {max(silhouettes[method])}" for method, count in best.items())
    return Card(
        "How many groups",
        "The mean silhouette (-1 to 1) of the groups that K-means finds, by their number: on PSI features as "
        "in clust_psi_pfl, on label shares as in cafa. Methods take the highest point, the large one here.",
        [f"Best number of groups by {', by '.join(chosen)}."],
        figure=figure(traces, "groups", "silhouette"),
    )


def _measures(diagnosis: Diagnosis) -> Card:
    ratio, gini = diagnosis.size_imbalance
    rows = [
        ("WPSI", diagnosis.wpsi, f"chance alone gives {diagnosis.wpsi_by_chance:.3f}"),
        ("WPSI, ½ pseudo-count", diagnosis.wpsi_laplace, "leans less on missing classes"),
        ("Hellinger", diagnosis.hellinger, "between pairs of clients, 0 to 1"),
        ("Jensen-Shannon", diagnosis.jensen_shannon, "all clients at once; shrinks with their number"),
        ("label EMD", diagnosis.label_emd, "from clients to the federation, 0 to 2"),
        ("coverage", float(np.nanmean(diagnosis.coverage)), "share of the classes that a client holds"),
        ("Gini of sizes", gini, f"largest client {ratio:,.3g} x smallest"),
    ]
    table = TextTable(
        ("measure", ">value", "how to read it"), [(name, f"{v:.3f}", how) for name, v, how in rows]
    )
    return Card("Federation", table=table)


def _clients(diagnosis: Diagnosis) -> Card:
    order = np.argsort(-np.nan_to_num(diagnosis.psi, nan=-1.0), kind="stable")[:LISTED].tolist()
    readings = [f">group by {item.rule}" for item in diagnosis.suggestions]
    rows = [
        [
            diagnosis.client_names[k],
            f"{diagnosis.size[k]:,.0f}",
            _number(diagnosis.psi[k]),
            _number(diagnosis.hellinger_to_pool[k]),
            f"{(diagnosis.counts[k] > 0).sum()}",
            *("–" if item.labels[k] < 0 else f"{item.labels[k]}" for item in diagnosis.suggestions),
        ]
        for k in order
    ]
    left = len(diagnosis.client_names) - len(order)
    return Card(
        "Clients, most deviating first",
        "The last columns are the groups that two readings of the labels suggest. Hellinger: the distance to "
        "the whole federation, 0 to 1.",
        table=TextTable(("client", ">samples", ">PSI", ">Hellinger", ">classes", *readings), rows),
        note=f"and {left:,} more" if left else "",
    )


def _attributes(skew: FeatureSkew) -> Card:
    rows = []
    for feature in most(skew.wpsi, LISTED):
        (client,) = most(skew.psi[:, feature], 1)
        numbers = (_number(value) for value in (skew.wpsi[feature], skew.chance[feature]))
        own = skew.client_names[client], _number(skew.psi[client, feature])
        rows.append([skew.features[feature], *numbers, *own, f"{skew.empty[feature]:.0%}"])
    return Card(
        "Attributes, most different between clients first",
        HOW_TO_READ,
        table=TextTable(
            ("attribute", ">WPSI", ">by chance", "client that differs most", ">its PSI", ">empty"), rows
        ),
    )


def _number(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.3f}"
