"""What expressions are: all that is known of values."""

from __future__ import annotations

from torchlint.semantic.calls.functions import Functions
from torchlint.semantic.scope.vocabulary import Vocabulary
from torchlint.semantic.values.arrays import Arrays
from torchlint.semantic.values.attention import Attentions
from torchlint.semantic.values.autocasting import Autocasting
from torchlint.semantic.values.callextras import CallExtras
from torchlint.semantic.values.dtypes import Dtypes
from torchlint.semantic.values.hosting import Hosting
from torchlint.semantic.values.known import KnownValues
from torchlint.semantic.values.options import Options
from torchlint.semantic.values.placement import Placement
from torchlint.semantic.values.plain_numbers import PlainNumbers
from torchlint.semantic.values.precision import Precision
from torchlint.semantic.values.reductions import Reductions
from torchlint.semantic.values.scores import Scores
from torchlint.semantic.values.usage import Usage
from torchlint.semantic.values.visibility import Visibility


class ValueFacts(KnownValues):
    """What expressions are: their values, kinds, origins, dtypes and gradients."""

    def __init__(self, functions: Functions, vocabulary: Vocabulary) -> None:
        super().__init__(functions)
        self.dtypes = Dtypes(self)
        self.hosting = Hosting(self)
        self.placement = Placement(self, self.hosting)
        self.arrays = Arrays(self)
        self.numbers = PlainNumbers(self)
        self.attentions = Attentions(self, self.numbers)
        self.scores = Scores(self, self.numbers)
        self.options = Options(self)
        self.precision = Precision(self, vocabulary, self.options)
        self.autocasting = Autocasting(self, self.precision)
        self.reductions = Reductions(self)
        self.visibility = Visibility(self)
        self.usage = Usage(self)
        self.call_extras = CallExtras(self)
