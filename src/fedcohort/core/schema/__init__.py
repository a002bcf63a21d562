"""What clients and the server send each other: every message, number by number.

The bytes in results, the lists of what leaves a client and what it receives, what ``fedcohort methods`` says,
how a deployed client writes its answers, and the names, shapes, kinds and bounds by which the server believes
them all follow from what is written down here.
"""

from fedcohort.core.schema.down import (
    ADAPTATION,
    EVERY,
    INSTRUCTIONS,
    model_records,
    order_records,
    scale_fields,
)
from fedcohort.core.schema.field import FACTS, Field, Fields, Range, bytes_of, fields_of
from fedcohort.core.schema.up import (
    SIDE,
    SLACK,
    TOLERANCE,
    answers_of,
    by_class_fields,
    count_fields,
    cross_fields,
    data_fields,
    evaluation_fields,
    is_judged,
    memory_fields,
    moment_fields,
    poll_fields,
    profile_fields,
    score_fields,
    summary_fields,
    survey_fields,
    training_fields,
    update_fields,
)

__all__ = [
    "ADAPTATION", "EVERY", "FACTS", "INSTRUCTIONS", "SIDE", "SLACK", "TOLERANCE", "Field", "Fields", "Range",
    "answers_of", "by_class_fields", "bytes_of", "count_fields", "cross_fields", "data_fields",
    "evaluation_fields", "fields_of", "is_judged", "memory_fields", "model_records", "moment_fields",
    "order_records", "poll_fields", "profile_fields", "scale_fields", "score_fields", "summary_fields",
    "survey_fields", "training_fields", "update_fields",
]  # fmt: skip
