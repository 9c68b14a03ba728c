"""What each argument of a flagged function is for, from how the function uses it, and an expression that makes one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from memlint.roles import Use, uses
from memlint.trial.batches import TARGET, Feed, aliases, dotted, iterations
from memlint.trial.guess import Guess
from memlint.trial.ranks import ranks, sizes
from memlint.trial.watch import Place

UNKNOWN = "0.1"  # a number of which nothing is known

_ROLE_NAMES: tuple[tuple[str, str], ...] = (
    ("device", r"^(device|dev|gpu|cuda_device)$"),
    ("scheduler", r"sched|lr_policy"),
    ("scaler", r"scaler$"),
    ("optimizer", r"^optim|optimi[sz]er|^opt$|_opt$|^opt_"),
    ("criterion", r"criteri|loss_f|lossf|^loss$|_loss$|objective"),
    ("loader", r"loader|data_?iter|iterator|^batches$|^data$|dataset|^dl$|_dl$|^queue$"),
    (
        "model",
        r"^(net|model|network|encoder|decoder|backbone|generator|discriminator|policy|actor|critic|module|student|teacher|classifier|net[gd]|ema)$|model$|_net$|network$",
    ),
    ("quiet", r"logg|writer|board|tracker|callback|progress|pbar|bar$|wandb|meter|metric|profil|timer|hook|console"),
    ("options", r"^(args?|cfg|config|conf|opts?|hparams?|hps?|options?|params?|flags?|settings?)$"),
)
_NUMBERS: tuple[tuple[str, str], ...] = (
    (r"shape$|^size$", "(BATCH, WIDTH)"),
    (
        r"^(use|is|do|no|with|enable|save|verbose|debug|distributed|fp16|amp|half|resume|test|eval|train|training|compile|pretrained)(_|$)",
        "False",
    ),
    (
        r"path|dir$|_dir|folder|file|^name$|_name$|(^|_)mode|prefix|phase|split|tag|^type$|dtype|backend|title|run_id",
        '"trial"',
    ),
    (r"^max_?(iters?|iterations|steps?)$", "STEPS + 1"),
    (r"epoch|_?rounds?$|_?iters?$|iterations|_?steps?$|^n$|^num$|^max_", "1"),
    (r"freq|interval|every|patience|_step$", "10"),
    (r"classes|vocab|n_out|num_labels|out_dim|^k$", "10"),
    (r"drop(out)?|prob(ability)?$|(^|_)(rate|ratio|lr|eps|alpha|beta|gamma|momentum|decay|temperature)$", UNKNOWN),
    (
        r"^(d_model|width|features|channels)$|hidden|(embed|emb|feature|model|attention|inner|latent)(ding)?_?(size|dim)",
        "WIDTH",
    ),
    (r"(seq|sequence|text|token)s?_?(len|length)$|^(length|max_len|max_length)$", "TOKENS"),
    (r"batch_?size|bsz", "8"),
    (r"seed|rank|start|^i$|^idx|index|best|acc", "0"),
    (r"accum", "1"),
)


_OF_TENSORS = frozenset(
    """to cuda cpu size shape view reshape flatten float long int bool squeeze unsqueeze detach mean sum max min dim
    device dtype numel transpose permute t T item""".split()
)
_OF_OPTIMIZERS = frozenset("step zero_grad param_groups state_dict load_state_dict state defaults optimizer".split())
_ONLY_OF_TENSORS = frozenset(
    """to cuda cpu size shape view reshape unsqueeze squeeze detach numel permute transpose contiguous expand expand_as
    gather masked_fill scatter_ repeat new_zeros new_ones flatten argmax softmax unbind repeat_interleave matmul bmm
    clone""".split()
)
_OF_MODULES = frozenset(
    """parameters named_parameters train eval to cuda cpu state_dict load_state_dict zero_grad modules children apply
    half float double forward named_modules named_children buffers named_buffers requires_grad_ share_memory training
    module add_module get_parameter generate device config no_sync register_forward_hook register_buffer type bfloat16
    register_full_backward_hook compile""".split()
)
_OF_MAPPINGS = frozenset("get items keys values pop setdefault update copy".split())
_WHOLE = re.compile(r"\d+$|[A-Z]+( \+ 1)?$")
_OPTIONS = re.compile(dict(_ROLE_NAMES)["options"], re.I)


@dataclass
class Setup:
    """A set-up in the making: statements, in order, and the argument that each parameter gets."""

    lines: list[str] = field(default_factory=list)
    arguments: dict[str, str] = field(default_factory=dict)
    models: list[str] = field(default_factory=list)
    optimizers: list[str] = field(default_factory=list)


class Roles:
    """Makes the set-up of one function, or stand-ins for names in a ``scope`` of which it is a part.

    ``guess`` is the batch to try, ``model`` an expression for the project's own model, or "" for a stand-in.
    """

    def __init__(
        self,
        tree: ast.Module,
        function: ast.AST,
        owner: ast.ClassDef | None,
        place: Place,
        guess: Guess,
        model: str = "",
    ) -> None:
        self._tree = tree
        self._function = function
        self._owner = owner
        self._place = place
        self._guess = guess
        self._model = model
        self._scope: ast.AST = owner or function
        self._uses = uses(self._scope)
        self._targets = dict(iterations(self._scope, place.source))
        self._ranks = ranks(function)
        self._sizes = sizes(self._scope)
        self._feed = Feed(self._scope, self._uses, self._targets, guess, bool(model), self._ranks)
        self._setup = Setup()
        self._keys = _keys(tree)
        self.quiet = "Quiet()"  # an expression for what only takes notes

    def make(self) -> Setup:
        """The set-up: an instance for a method, and an argument for every parameter that needs one."""
        assert isinstance(self._function, (ast.FunctionDef, ast.AsyncFunctionDef))
        arguments = self._function.args
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        if self._owner is not None and not _is_static(self._function):
            named = named[1:]
        defaults = _defaults(arguments)
        chosen: list[tuple[str, str]] = []
        for parameter in named:
            role = self._role(parameter.arg, parameter.annotation)
            if self._skips(parameter.arg, role, defaults):
                continue
            chosen.append((parameter.arg, role))
        order = ("model", "loader", "criterion", "optimizer", "scheduler", "scaler")
        if self._owner is not None and not _is_static(self._function):
            self._instance(order)
        chosen.sort(key=lambda pair: order.index(pair[1]) if pair[1] in order else len(order))
        for name, role in chosen:
            self._setup.arguments[name] = self._made(name, name, role)
        return self._setup

    def stand_ins(self, names: Iterable[str], inside: set[str]) -> dict[str, str]:
        """For each of ``names`` whose role tells what it holds, an expression that makes one.

        In it ``names["…"]`` is what another of them holds. What is bound ``inside`` the loop is no loader for it.
        """
        roles = {name: self._role(name) for name in names}
        for name in inside & {name for name, role in roles.items() if role == "loader"}:
            roles[name] = "options" if self._uses.get(name, Use()).attributes else "quiet"
        models = [name for name, role in roles.items() if role == "model"]
        models += [
            a for a in map("self.{}".format, sorted(self._uses.get("self", Use()).attributes)) if self._weighs(a)
        ]
        model = next(iter(models), "")
        optimizer = next((name for name, role in roles.items() if role == "optimizer"), "")
        weights = f'names["{model}"]' if model else f'StandIn("{self._guess.kind}")'
        descent = f"torch.optim.SGD({weights}.parameters(), lr=0.01)"
        made: dict[str, str] = {}
        for name, role in roles.items():
            here = "" if self._uses.get(name, Use()).attributes & {"to", "cuda"} else ".to(device)"
            if role == "model":
                made[name] = self._model_expression(name) + here
            elif role == "optimizer":
                made[name] = descent
            elif role == "scheduler":
                made[name] = f"torch.optim.lr_scheduler.StepLR({f'names[{optimizer!r}]' if optimizer else descent}, 99)"
            elif role == "tensor":
                made[name] = self._feed.element(name.rpartition(".")[2], last=False) + here
            elif role == "loader":
                made[name] = f"Batches(STEPS + 1, lambda: {self._feed.batch(name)})"
            elif role == "options" and not _OPTIONS.search(name):
                fields = sorted(a for a in self._uses.get(name, Use()).attributes if not a.startswith("_"))
                if any(self._uses.get(f"{name}.{a}", Use()).attributes - _OF_TENSORS for a in fields):
                    continue  # its parts are no tensors
                made[name] = f"Output({', '.join(f'{a}={self._feed.element(a, last=False)}' for a in fields)})"
            elif role == "number":
                if (value := self._number(name)) not in (UNKNOWN, "COUNT"):
                    made[name] = value
            elif role not in ("quiet", "sequence"):
                made[name] = self._made(name, name, role)
        return made

    def _weighs(self, name: str) -> bool:
        """Whether ``name`` is a model whose parameters are asked for."""
        use = self._uses.get(name, Use())
        return self._role(name) == "model" and bool(use.attributes & {"parameters", "named_parameters"})

    def needed(self, name: str) -> bool:
        """Whether the function cannot do with ``name`` as None: it counts with it."""
        return any(
            isinstance(node, (ast.BinOp, ast.Compare))
            and not any(isinstance(operator, (ast.Is, ast.IsNot)) for operator in getattr(node, "ops", ()))
            and any(dotted(part) == name for part in ast.iter_child_nodes(node))
            for node in ast.walk(self._function)
        )

    def iterated(self) -> list[str]:
        """The names that loops run over."""
        return list(self._targets)

    def _skips(self, name: str, role: str, defaults: dict[str, ast.expr]) -> bool:
        """Whether the parameter keeps its default: it has one that will do."""
        if name not in defaults or name in re.findall(r"\w+", self._place.source):
            return name in defaults and role not in ("number", "whole", "loader")
        default = defaults[name]
        empty = isinstance(default, ast.Constant) and default.value is None
        wanted = role in ("model", "loader", "device", "criterion") and not self._guarded(name)
        return not (empty and (wanted or (role in ("number", "whole") and self.needed(name))))

    def _guarded(self, name: str) -> bool:
        """Whether the function asks if ``name`` was given at all."""
        return any(
            isinstance(node, (ast.If, ast.IfExp, ast.BoolOp))
            and any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(getattr(node, "test", node)))
            for node in ast.walk(self._function)
        )

    def _role(self, name: str, annotation: ast.expr | None = None) -> str:
        last = name.rpartition(".")[2].lstrip("_").lower()
        written = _annotated(annotation)
        if written:
            return written
        use = self._uses.get(name, Use())
        known = {"module": "model", "optimizer": "optimizer", "scaler": "scaler"}.get(use.role, "")
        by_name = next((role for role, pattern in _ROLE_NAMES if re.search(pattern, last)), "")
        if self._holds_models(name):
            return "model"
        if known:
            return known
        if name in self._ranks:
            return "tensor"
        if name in self._sizes and not use.attributes:
            return "number"
        if name in self._targets and by_name not in ("options", "model"):
            return "loader"
        if by_name == "loader" and name in self._keys:
            return "mapping"
        if by_name == "optimizer" and use.attributes and not use.attributes & _OF_OPTIMIZERS:
            by_name = "options"
        if by_name == "options":
            return "options" if use.attributes or name in self._keys else "quiet"
        if by_name == "scaler" and use.called:
            return "quiet"
        if by_name == "criterion" and not use.called and (self.needed(name) or not self._passed_on(name)):
            by_name = ""
        if by_name:
            return by_name
        if self._is_device(name):
            return "device"
        if self._counted(name):
            return "sequence"
        if use.called:
            return "model"
        if (
            self._fed(name)
            or use.attributes & _ONLY_OF_TENSORS
            or TARGET.search(last)
            or last in ("x", "inputs", "images", "batch")
        ):
            return "tensor"
        if use.attributes:
            return (
                "options"
                if not use.calls and not any(self._uses.get(f"{name}.{a}", Use()).called for a in use.attributes)
                else "quiet"
            )
        return "tensor" if self._forwards(name) else "number"

    def _holds_models(self, name: str) -> str:
        """What holds models, where ``name`` is gone through and what it gives is used as one; else ""."""
        for node in ast.walk(self._scope):
            if not isinstance(node, (ast.For, ast.comprehension)):
                continue
            items = node.iter.func if isinstance(node.iter, ast.Call) else node.iter
            keyed = isinstance(items, ast.Attribute) and items.attr in ("items", "values")
            if dotted(items) not in ((f"{name}.items", f"{name}.values") if keyed else (name,)):
                continue
            one = node.target.elts[-1] if isinstance(node.target, ast.Tuple) else node.target
            if self._uses.get(dotted(one), Use()).role == "module":
                return "ModuleDict" if keyed else "ModuleList"
        return ""

    def _forwards(self, name: str) -> bool:
        """Whether ``name`` is a parameter of a module's ``forward`` that has no default."""
        function = self._function
        if not isinstance(function, ast.FunctionDef) or function.name != "forward" or self._owner is None:
            return False
        return name in {a.arg for a in function.args.args[1:]} - set(_defaults(function.args))

    def _passed_on(self, name: str) -> bool:
        return any(isinstance(c, ast.Call) and any(dotted(a) == name for a in c.args) for c in ast.walk(self._scope))

    def _is_device(self, name: str) -> bool:
        for call in (n for n in ast.walk(self._scope) if isinstance(n, ast.Call)):
            moved = (
                isinstance(call.func, ast.Attribute)
                and call.func.attr == "to"
                and any(dotted(a) == name for a in call.args)
            )
            if moved or any(k.arg == "device" and dotted(k.value) == name for k in call.keywords):
                return True
        return False

    def _counted(self, name: str) -> bool:
        """Whether ``len(name)`` is asked for."""
        calls = (n for n in ast.walk(self._scope) if isinstance(n, ast.Call) and n.args)
        return any(dotted(call.func) == "len" and dotted(call.args[0]) == name for call in calls)

    def _fed(self, name: str) -> bool:
        """Whether ``name`` goes into a model."""
        return any(
            isinstance(c, ast.Call)
            and any(dotted(a) == name for a in c.args)
            and self._uses.get(dotted(c.func), Use()).role == "module"
            for c in ast.walk(self._scope)
        )

    def _made(self, variable: str, name: str, role: str) -> str:
        """An expression for something of ``role``; what others refer to becomes a variable first."""
        setup = self._setup
        if role == "model":
            setup.lines.append(f"{variable} = {self._model_expression(name)}.to(device)")
            setup.models.append(variable)
            return variable
        if role == "optimizer":
            weights = next(iter(setup.models), "")
            if not weights:
                weights = self._made("model", "model", "model")
            setup.lines.append(f"{variable} = torch.optim.SGD({weights}.parameters(), lr=0.01)")
            setup.optimizers.append(variable)
            return variable
        if role == "loader":
            if self._model and not setup.models:
                self._made("model", "model", "model")
            steps = "1" if self._epochs() else "STEPS"
            return f"Batches({steps}, lambda: {self._feed.batch(name)})"
        if role == "scheduler":
            optimizer = next(iter(setup.optimizers), "") or self._made("optimizer", "optimizer", "optimizer")
            return f"torch.optim.lr_scheduler.StepLR({optimizer}, 1000)"
        if role == "options":
            known = sorted(self._attributes(name))
            fields = [
                f"{a}={self._made(f'{variable}_{a}', f'{name}.{a}', self._plain_role(f'{name}.{a}'))}" for a in known
            ]
            others = [] if self.quiet == "Quiet()" else [self.quiet]
            return f"Options({', '.join([*others, *fields])})"
        if role == "tensor":
            return self._feed.element(name.rpartition(".")[2], last=False) + ".to(device)"
        if role == "mapping":
            parts = sorted(self._keys[name])
            return f"Output({', '.join(f'{k}={self._feed.element(k, last=False)}.to(device)' for k in parts)})"
        return {
            "criterion": f'loss_of("{self._guess.kind}")',
            "scaler": "torch.amp.GradScaler(device.type)",
            "device": "device",
            "quiet": self.quiet,
            "sequence": "torch.rand(STEPS).to(device)",
            "sizes": "(8, 8, 8)",
            "numbers": "(0.5, 0.5, 0.5)",
            "whole": self._number(name, whole=True),
            "text": '"trial"',
        }.get(role) or self._number(name)

    def _plain_role(self, name: str) -> str:
        """The role of an option: options hold numbers, words and devices, seldom a model and nothing else."""
        role = self._role(name)
        module = role == "model" and self._uses.get(name, Use()).role == "module"
        return role if module or role in ("device", "options") else "number"

    def _attributes(self, name: str) -> set[str]:
        """Every attribute that the file reads from options called ``name``."""
        read = uses(self._tree).get(name, Use()).attributes | self._uses.get(name, Use()).attributes
        return (read | self._keys.get(name, set())) - _OF_MAPPINGS

    def _number(self, name: str, *, whole: bool = False) -> str:
        last = name.rpartition(".")[2].lower()
        if last in re.findall(r"\w+", self._place.source.lower()):
            return "STEPS"
        known = (name, *aliases(self._scope, name))
        if size := next((self._sizes[n] for n in known if n in self._sizes), ""):
            return size
        unknown = {"whole": "COUNT", "tensor": f"{self._guess.inputs}.to(device)"}.get(self._guess.unknown, UNKNOWN)
        value = next((value for pattern, value in _NUMBERS if re.search(pattern, last)), unknown)
        return "COUNT" if whole and not _WHOLE.match(value) else value

    def _epochs(self) -> bool:
        """Whether the watched loop runs over epochs, with whole loaders inside."""
        return (
            self._place.loop is not None
            and not any(name in self._place.source for name in self._targets)
            and "range" in self._place.source
        )

    def _model_expression(self, name: str) -> str:
        if self._model:
            return self._model
        if holder := self._holds_models(name):
            one = f'StandIn("{self._guess.kind}")'
            made = (
                f"{{str(i): {one} for i in range(STEPS + 1)}}"
                if holder == "ModuleDict"
                else f"{one} for _ in range(STEPS + 1)"
            )
            return f"torch.nn.{holder}({made})"
        gives = self._feed.gives(name)
        also = {
            attribute: self._part(f"{known}.{attribute}")
            for known in (name, *aliases(self._scope, name))
            for attribute in sorted(self._uses.get(known, Use()).attributes - _OF_MODULES)
            if self._part(f"{known}.{attribute}")
        }
        words = [f'"{self._guess.kind}"'] + [f'gives="{gives}"'] * (gives != "logits") + [f"also={also}"] * bool(also)
        return f"StandIn({', '.join(words)})"

    def _part(self, name: str) -> str:
        """What ``name``, an attribute of a model, gives where it is called; else "model" or "optimizer" for one."""
        use = self._uses.get(name, Use())
        if "optim" in name.rpartition(".")[2]:
            return "optimizer"
        if use.role == "module" and not use.called:
            return "model"
        return self._feed.gives(name) if use.called else ""

    def _instance(self, order: tuple[str, ...]) -> None:
        """The object whose method is flagged: its class's arguments, and the attributes that its methods read."""
        owner = self._owner
        assert owner is not None
        start = next((f for f in owner.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"), None)
        built = {
            n.attr
            for n in ast.walk(start or ast.Module([], []))
            if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) and dotted(n.value) == "self"
        }
        methods = {f.name for f in owner.body if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef))}
        given: dict[str, str] = {}
        for node in ast.walk(start or ast.Module([], [])):
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.value, ast.Name)
                and dotted(node.targets[0]).startswith("self.")
            ):
                given[node.value.id] = dotted(node.targets[0])
        arguments: dict[str, str] = {}
        roles: list[tuple[str, str, str]] = []
        if start is not None:
            defaults = _defaults(start.args)
            for parameter in [*start.args.args[1:], *start.args.kwonlyargs]:
                if parameter.arg not in defaults:
                    name = given.get(parameter.arg, parameter.arg)
                    roles.append((parameter.arg, name, self._role(name, parameter.annotation)))
        roles.sort(key=lambda triple: order.index(triple[2]) if triple[2] in order else len(order))
        for parameter_name, name, role in roles:
            arguments[parameter_name] = self._made(f"its_{parameter_name}", name, role)
        read = self._uses.get("self", Use()).attributes - methods
        inherited = any(ast.unparse(base).rpartition(".")[2] not in ("object", "Module", "ABC") for base in owner.bases)
        lacked_here = read if inherited or owner.decorator_list else read & built
        extra = {a: self._role(f"self.{a}") for a in sorted(lacked_here)} if owner.bases or start is not None else {}
        attributes: dict[str, str] = {}
        for attribute, role in sorted(
            extra.items(), key=lambda pair: order.index(pair[1]) if pair[1] in order else len(order)
        ):
            source = next((p for p, target in given.items() if target == f"self.{attribute}" and p in arguments), None)
            literal = _literal(start, attribute)
            attributes[attribute] = (
                arguments[source] if source else literal or self._made(f"its_{attribute}", f"self.{attribute}", role)
            )
        models = {name: made for name, made in attributes.items() if made in self._setup.models}
        for name, made in models.items():
            if (whole := models.get(_whole(owner, name), made)) != made:
                self._setup.lines.append(f"{whole}.{name} = {made}")
        wanted = ", ".join(f'"{k}": {v}' for k, v in arguments.items())
        lacked = ", ".join(f'"{k}": {v}' for k, v in attributes.items())
        self._setup.lines.append(f"owner = instance(module.{owner.name}, {{{wanted}}}, {{{lacked}}})")
        moved = any("Module" in ast.unparse(base) for base in owner.bases)
        self._setup.arguments["self"] = "owner.to(device)" if moved else "owner"


def _keys(tree: ast.Module) -> dict[str, set[str]]:
    """The keys, as names, by which the file reads each name."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and (name := dotted(node.value)):
            if isinstance(node.slice.value, str) and node.slice.value.isidentifier():
                found.setdefault(name, set()).add(node.slice.value)
    return found


def own_models(tree: ast.Module) -> list[str]:
    """Expressions for the modules of this file that can be built without arguments: a whole model before its parts."""
    classes = [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef) and any(re.search(r"\bModule$", ast.unparse(b)) for b in node.bases)
    ]
    parts = {
        n.func.id for c in classes for n in ast.walk(c) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
    }
    free = []
    for node in classes:
        start = next((f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"), None)
        if node.name not in parts and (start is None or len(start.args.args) - 1 <= len(start.args.defaults)):
            free.append(f"module.{node.name}()")
    return free


def _annotated(annotation: ast.expr | None) -> str:
    text = ast.unparse(annotation) if annotation is not None else ""
    table = (
        ("loader", r"Loader|Iterable|Iterator"),
        ("optimizer", r"Optimizer"),
        ("scheduler", r"Scheduler"),
        ("scaler", r"GradScaler"),
        ("model", r"\bModule\b"),
        ("tensor", r"\bTensor\b"),
        ("device", r"\bdevice\b"),
        ("sizes", r"^(typing\.)?(Sequence|[Tt]uple|[Ll]ist)\[int\b"),
        ("numbers", r"^(typing\.)?(Sequence|[Tt]uple|[Ll]ist)\[float\b"),
        ("whole", r"^int\b"),
        ("text", r"^(str|(pathlib\.)?Path)\b"),
        ("number", r"^(float|bool)\b"),
    )
    return next((role for role, pattern in table if re.search(pattern, text)), "")


def _defaults(arguments: ast.arguments) -> dict[str, ast.expr]:
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True)
    keyword = ((a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None)
    return {a.arg: d for a, d in [*pairs, *keyword]}


def _is_static(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(dotted(d) == "staticmethod" for d in function.decorator_list)


def _whole(owner: ast.ClassDef, attribute: str) -> str:
    """The attribute of which ``attribute`` is a part: ``self.net = self.policy.net``."""
    for node in ast.walk(owner):
        if isinstance(node, ast.Assign) and dotted(node.targets[0]) == f"self.{attribute}":
            first, _, rest = dotted(node.value).partition(".")
            if first == "self" and "." in rest:
                return rest.partition(".")[0]
    return ""


def _literal(start: ast.FunctionDef | None, attribute: str) -> str:
    """The text that ``__init__`` gives ``attribute`` where that is an empty container or a constant."""
    for node in ast.walk(start) if start is not None else ():
        if isinstance(node, ast.Assign) and dotted(node.targets[0]) == f"self.{attribute}":
            try:
                ast.literal_eval(node.value)
            except ValueError:
                continue
            return ast.unparse(node.value)
    return ""
