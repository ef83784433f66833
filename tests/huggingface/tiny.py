"""A tiny BERT and sentences of unequal length, of which a network learns in a few steps."""

import torch
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments

import pluribus as pl
from pluribus.huggingface import EnsembleTrainer

WORDS, SIGN = 12, 7
"""Numbers of words from 2 on; the class of a sentence is whether it holds the word 7."""


def bert(**changes):
    """Return a network with random weights."""
    torch.manual_seed(0)
    settings = {
        "vocab_size": WORDS,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "max_position_embeddings": 16,
        "num_labels": 2,
    }
    return BertForSequenceClassification(BertConfig(**settings | changes))


def sentences(count, seed=0):
    """Return samples with tokens, a class, and an entry that the network does not accept."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for number in range(count):
        length = int(torch.randint(3, 8, (1,), generator=generator))
        tokens = torch.randint(2, WORDS, (length,), generator=generator)
        tokens[tokens == SIGN] = 2
        if number % 2:
            tokens[int(torch.randint(length, (1,), generator=generator))] = SIGN
        found.append({"input_ids": tokens, "labels": number % 2, "text": "not an input"})
    return found


def pad(samples):
    """Return a batch as tokenizers pad it."""
    tokens = [one["input_ids"] for one in samples]
    ids = torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True)
    labels = torch.tensor([one["labels"] for one in samples])
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": labels}


def trainer(folder, method="deep_ensembles(members=2)", count=64, network=None, **options):
    """Return a trainer of a new ensemble; `options` are arguments of the trainer, others of the training."""
    own = {"calibration_dataset", "uncertainty", "compute_metrics", "compute_loss_func", "callbacks"}
    given = {name: options.pop(name) for name in own & set(options)}
    settings = {
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
        "save_strategy": "no",
        "max_steps": 4,
        "per_device_train_batch_size": 16,
        "learning_rate": 0.02,
        "remove_unused_columns": True,
    }
    args = TrainingArguments(str(folder), **settings | options)
    example = pad(sentences(2))
    del example["labels"]
    ensemble = pl.convert(network or bert(), method, example=example)
    data = {"train_dataset": sentences(count), "eval_dataset": sentences(32, seed=1)}
    return EnsembleTrainer(ensemble, args, data_collator=pad, **data, **given)
