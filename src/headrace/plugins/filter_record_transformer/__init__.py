"""Filter `record_transformer`.

- filter.py      the parameters, and the function that is made of them
- (the expressions are in headrace.plugins.expressions)
"""

from headrace.plugins.filter_record_transformer.filter import RecordTransformerFilter

__all__ = ["RecordTransformerFilter"]
