"""Random predictions with targets that they fit to a degree, and predictions with given probabilities."""

import torch

from pluribus.likelihood import Bernoulli, Categorical, Gaussian, Point


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def mixed(likelihood, members, *shape, seed=0, scale=2.0, dtype=torch.float64):
    """A prediction with random outputs around a common part, and random weights."""
    common, own = normal(*shape, seed=seed, dtype=dtype), normal(members, *shape, seed=seed + 1, dtype=dtype)
    return likelihood.prediction(
        scale * (common + own / 2), normal(members, seed=seed + 2, dtype=dtype).softmax(0)
    )


def draw(probabilities, seed):
    """Outcomes drawn from probabilities `[batch, outcomes, ...]`."""
    last = probabilities.movedim(1, -1)
    drawn = torch.multinomial(last.flatten(0, -2), 1, generator=torch.Generator().manual_seed(seed))
    return drawn.reshape(last.shape[:-1])


def classes(batch=300, outcomes=4, *sizes, members=3, seed=0, scale=2.0):
    """A categorical prediction, and a target drawn from it."""
    prediction = mixed(Categorical(), members, batch, outcomes, *sizes, seed=seed, scale=scale)
    return prediction, draw(prediction.probabilities, seed + 3)


def answers(batch=300, *sizes, members=3, seed=0, scale=2.0):
    """A Bernoulli prediction, and a target of zeros and ones drawn from it."""
    prediction = mixed(Bernoulli(), members, batch, *sizes, seed=seed, scale=scale)
    return prediction, draw(prediction.log_probabilities.exp(), seed + 3).double()


def numbers(batch=300, *sizes, members=3, seed=0, likelihood=None):
    """A Gaussian prediction, of fixed precision unless told, and a target around its mean."""
    prediction = mixed(likelihood or Gaussian(precision=0.5), members, batch, *sizes, seed=seed)
    return prediction, prediction.mean + prediction.std * normal(*prediction.mean.shape, seed=seed + 3)


def points(batch=300, *sizes, members=3, seed=0):
    """A point prediction, and a target around its mean."""
    return numbers(batch, *sizes, members=members, seed=seed, likelihood=Point())


def stated(probabilities):
    """One member with the given probabilities, `[batch, classes]`; impossible classes get about e^-1000."""
    return Categorical().prediction(torch.as_tensor(probabilities).double().log().clamp(min=-1000)[None])


def sure(labels, outcomes):
    """Members that are certain of their labels, `[members, batch]`."""
    return Categorical().prediction(1000.0 * torch.nn.functional.one_hot(torch.as_tensor(labels), outcomes))
