"""Tokenizers of the bundled models, and token streams with sampled subword segmentations."""

import json

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

END_OF_TEXT = "<|endoftext|>"  # opens a document and closes it; always id 0

# The pre-tokenizer pattern of the Qwen family: digits one by one, newlines kept together.
QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

SEGMENTATIONS_PER_WORD = 8  # distinct draws kept per word; more changes nothing measurable
SPEECHES_PER_DOCUMENT = 16  # mean length of a document: short enough that the model learns to end


def train_tokenizer(name, text, vocabulary):
    tokenizer = Tokenizer(BPE())
    byte_level = processors.ByteLevel(trim_offsets=False)
    if name == "bard":  # GPT-2's pattern, and a start token put before every text
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        start = processors.TemplateProcessing(
            single=f"{END_OF_TEXT} $A", pair=f"{END_OF_TEXT} $A {END_OF_TEXT}:1 $B:1",
            special_tokens=[(END_OF_TEXT, 0)])
        tokenizer.post_processor = processors.Sequence([byte_level, start])
    else:  # as Qwen: NFC, its own pattern, no start token
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(QWEN_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        tokenizer.post_processor = byte_level
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(vocab_size=vocabulary, special_tokens=[END_OF_TEXT], show_progress=False,
                         initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator([text], trainer)
    assert tokenizer.get_vocab_size() == vocabulary
    assert tokenizer.token_to_id(END_OF_TEXT) == 0
    return tokenizer


def tokenizer_config(tokenizer, context):
    return {
        "added_tokens_decoder": {
            "0": {"content": END_OF_TEXT, "lstrip": False, "normalized": False, "rstrip": False,
                  "single_word": False, "special": True}},
        "bos_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
        "eos_token": END_OF_TEXT,
        "model_max_length": context,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }


class SubwordSampler:
    """BPE dropout (Provilkov et al. 2020): each applicable merge is skipped with probability p.

    Written out here because the tokenizers library draws from an unseeded generator, and the
    training run is meant to be repeatable.
    """

    def __init__(self, tokenizer, dropout, rng):
        model = json.loads(tokenizer.to_str())["model"]
        self.vocabulary = model["vocab"]
        merges = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["merges"]]
        self.rank = {pair: i for i, pair in enumerate(merges)}
        self.dropout, self.rng = dropout, rng
        self.cache = {}

    def draw(self, word):
        parts = list(word)
        while len(parts) > 1:
            pairs = [(self.rank[p], i) for i, p in enumerate(zip(parts, parts[1:]))
                     if p in self.rank]
            if self.dropout:
                keep = self.rng.random(len(pairs)) >= self.dropout
                pairs = [p for p, kept in zip(pairs, keep) if kept]
            if not pairs:
                break
            _, i = min(pairs)
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        return [self.vocabulary[p] for p in parts]

    def variants(self, word):
        if word not in self.cache:
            count = SEGMENTATIONS_PER_WORD if self.dropout else 1
            self.cache[word] = [self.draw(word) for _ in range(count)]
        return self.cache[word]


def sample_streams(tokenizer, text, dropout, count, seed):
    """`count` encodings of the text, each with its own segmentation and document boundaries."""
    rng = np.random.default_rng(seed)
    sampler = SubwordSampler(tokenizer, dropout, rng)
    if tokenizer.normalizer:
        text = tokenizer.normalizer.normalize_str(text)
    speeches = text.split("\n\n")
    streams = []
    for _ in range(count):
        cuts = np.flatnonzero(rng.random(len(speeches)) < 1 / SPEECHES_PER_DOCUMENT)
        ids = []
        for start, end in zip([0, *cuts], [*cuts, len(speeches)]):
            document = "\n\n".join(speeches[start:end]) + "\n"
            words = tokenizer.pre_tokenizer.pre_tokenize_str(document)
            choices = rng.integers(0, SEGMENTATIONS_PER_WORD, size=len(words))
            ids.append(0)
            for (word, _), choice in zip(words, choices):
                variants = sampler.variants(word)
                ids.extend(variants[choice % len(variants)])
        streams.append(np.array(ids, dtype=np.int64))
    return streams
