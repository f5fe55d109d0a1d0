"""The description of a training job, and the check that the formulas cover it.

A field that the formula of a recipe does not use is refused, so that no result seems to depend on
it. There are two formulas. Data-parallel: every device has the whole model, and a scheme exchanges
gradients. Cut: a language model with more than 1024 hidden units, or with tensor or pipeline
parallelism; rings reduce the gradients over its replicas.
"""

from dataclasses import dataclass

from simulator.collectives.compression import COMPRESSIONS
from simulator.hardware.names import UnknownHardware
from simulator.training.checkpoints import Checkpointing
from simulator.training.models import Model, find_model
from simulator.training.plans import SCHEMES, SERVED, Scheme

# Bytes on the wire for one parameter's gradient.
GRADIENT_BYTES = {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 2.0}
# The precisions of a model that is cut; the formula's activations have two bytes each.
CUT_PRECISIONS = ("fp16", "bf16", "fp8")
# Schemes that need no GPUs.
ON_CPUS = SERVED | {Scheme.MPI}
# Schemes whose cost without overlap with the backward pass is known.
MAY_WAIT = frozenset({Scheme.ALL_REDUCE, Scheme.SHARDED, Scheme.HIERARCHICAL, Scheme.TORUS})
# Models with more hidden units than this are cut.
WHOLE_HIDDEN_MAX = 1024


class BadRecipe(ValueError):
    """The recipe cannot be followed; `field` names what is wrong with it."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field = field
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}"


@dataclass(frozen=True, slots=True)
class Recipe:
    """A training job as a user describes it. Zero, None and the empty text mean the default."""

    model: str
    # The default is fp32, and fp16 for models that are cut.
    precision: str = ""
    # Samples of one GPU in one step or micro-batch.
    batch: int = 0
    scheme: Scheme = Scheme.ALL_REDUCE
    compression: str = "none"
    accumulate: int = 1
    overlap: bool = True
    horovod: bool = False
    servers: int | None = None
    # Seconds that one GPU computes in a step, instead of the catalogue's value.
    compute_s: float | None = None
    # Whether samples are read and prepared; otherwise they are generated on the device.
    real_data: bool = False
    # Whether the next batch is copied to the device while this one computes; otherwise GPUs wait.
    prefetch: bool = True
    cached: float = 0.0
    tensor: int = 1
    pipeline: int = 1
    global_batch: int = 0
    checkpoint: Checkpointing | None = None
    # An evaluation of `evaluate_s` seconds after every `evaluate_steps` steps.
    evaluate_steps: int = 0
    evaluate_s: float = 0.0
    # None: GPUs compute. Otherwise each rank computes with this many hardware threads of its node;
    # with 0 the ranks of a node share all of them.
    cpus: float | None = None


def is_cut(recipe: Recipe, model: Model) -> bool:
    """Whether the formula for large language models applies."""
    large = model.hidden > WHOLE_HIDDEN_MAX and recipe.compute_s is None
    return recipe.tensor * recipe.pipeline > 1 or large


def precision_of(recipe: Recipe, model: Model) -> str:
    """Return the precision of a recipe, or the default for its formula."""
    return recipe.precision or ("fp16" if is_cut(recipe, model) else "fp32")


def check(recipe: Recipe, gpus: int) -> Model:
    """Return the recipe's model; raise BadRecipe if the recipe cannot be followed on `gpus` GPUs."""
    try:
        model = find_model(recipe.model)
    except UnknownHardware as unknown:
        raise BadRecipe("model", str(unknown)) from None
    if recipe.compression not in COMPRESSIONS:
        raise BadRecipe("compression", f"must be one of {', '.join(COMPRESSIONS)}")
    if recipe.precision and recipe.precision not in GRADIENT_BYTES:
        raise BadRecipe("precision", f"must be one of {', '.join(GRADIENT_BYTES)}")
    _check_numbers(recipe)
    if recipe.cpus is not None:
        _check_on_cpus(recipe, model)
    if is_cut(recipe, model):
        _check_cut(recipe, model, gpus)
    else:
        _check_data_parallel(recipe, model)
    return model


def _check_numbers(recipe: Recipe) -> None:
    for name in ("accumulate", "tensor", "pipeline"):
        if getattr(recipe, name) < 1:
            raise BadRecipe(name, "must be at least 1")
    for name in ("batch", "global_batch", "evaluate_steps", "evaluate_s"):
        if getattr(recipe, name) < 0:
            raise BadRecipe(name, "must not be negative")
    if recipe.compute_s is not None and recipe.compute_s <= 0:
        raise BadRecipe("compute_s", "must be above 0")
    if recipe.evaluate_s > 0 and not recipe.evaluate_steps:
        raise BadRecipe("evaluate_s", "has no meaning without evaluate_steps")
    if not recipe.real_data and (not recipe.prefetch or recipe.cached):
        raise BadRecipe("prefetch", "is about real data; without real_data nothing is read")


def _check_on_cpus(recipe: Recipe, model: Model) -> None:
    if is_cut(recipe, model):
        raise BadRecipe("model", f"{model.name} needs GPUs, and no rank that computes has any")
    if recipe.scheme not in ON_CPUS or recipe.compression == "1bit":
        known = ", ".join(name for name, scheme in SCHEMES.items() if scheme in ON_CPUS)
        field = "scheme" if recipe.scheme not in ON_CPUS else "compression"
        raise BadRecipe(field, f"needs GPUs, and no rank that computes has any; on CPUs: {known}")
    if recipe.precision not in ("", "fp32"):
        raise BadRecipe("precision", "must be fp32 where no rank that computes has a GPU")


def _check_data_parallel(recipe: Recipe, model: Model) -> None:
    if recipe.global_batch:
        raise BadRecipe(
            "global_batch", f"{model.name} trains data-parallel; give batch, the one of a GPU"
        )
    if recipe.compression == "1bit" and recipe.scheme is not Scheme.ALL_REDUCE:
        raise BadRecipe("scheme", "has no meaning with compression 1bit, which is a scheme itself")
    if recipe.servers is not None and recipe.scheme not in SERVED:
        known = ", ".join(name for name, scheme in SCHEMES.items() if scheme in SERVED)
        raise BadRecipe("servers", f"the scheme has no parameter servers; those with some: {known}")
    if not recipe.overlap and (recipe.scheme not in MAY_WAIT or recipe.compression == "1bit"):
        raise BadRecipe("overlap", "nothing is known of this scheme without overlap")


def _check_cut(recipe: Recipe, model: Model, gpus: int) -> None:
    if not model.hidden:
        raise BadRecipe("tensor", f"{model.name} is no transformer; it trains data-parallel")
    _refuse_unused(recipe, model)
    parallel = recipe.tensor * recipe.pipeline
    if gpus < parallel or gpus % parallel:
        problem = f"{gpus} GPUs cannot be cut into groups of {parallel}"
        raise BadRecipe("tensor", f"{problem} (tensor x pipeline)")
    least = gpus // parallel * (recipe.batch or 1)
    if 0 < recipe.global_batch < least:
        problem = f"{recipe.global_batch} is less than one micro-batch for each replica"
        raise BadRecipe("global_batch", problem)


def _refuse_unused(recipe: Recipe, model: Model) -> None:
    """Raise BadRecipe for a field that the formula of a model that is cut does not use."""
    if recipe.precision not in ("", *CUT_PRECISIONS):
        raise BadRecipe("precision", f"of {model.name} must be one of {', '.join(CUT_PRECISIONS)}")
    unused = {
        "scheme": recipe.scheme is not Scheme.ALL_REDUCE,
        "compression": recipe.compression != "none",
        "accumulate": recipe.accumulate != 1,
        "servers": recipe.servers is not None,
        "real_data": recipe.real_data,
        "overlap": not recipe.overlap,
        "horovod": recipe.horovod,
        "compute_s": recipe.compute_s is not None,
    }
    for name in [name for name, given in unused.items() if given]:
        how = "in its own formula (tensor, pipeline, global_batch; replicas are reduced by rings)"
        raise BadRecipe(name, f"is not used: {model.name} is computed {how}")
