"""Calls: of the project's functions and classes, of libraries as their rows say, and of what nobody knows."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from memlint.extract import Class, Definition
from memlint.facts import NOTHING, UNKNOWN, UNSET, Grad, Node, Obj, Origin, Value
from memlint.library import Row
from memlint.reading import Reading
from memlint.special import SPECIAL
from memlint.splice import Splice
from memlint.values import (
    CONTAINERS,
    EMPTY,
    GRAPHLESS,
    HANDLERS,
    LOADED,
    Mode,
    Partial,
    Symbol,
    chain,
    join,
    of_file,
    together,
    written,
)

if TYPE_CHECKING:
    from memlint.flow import Flow

DIFFERENTIATES = re.compile(
    r"backward|optim|train|step|grad|fit|update|attack|penalty|saliency|attribut|scaler|closure|learn", re.I
)
STORES = frozenset({"append", "extend", "insert", "add", "update", "setdefault", "put"})
MODES = {"no_grad": Grad.OFF, "inference_mode": Grad.OFF, "enable_grad": Grad.ON}
TENSOR_ONLY = frozenset(
    [
        "detach",
        "item",
        "backward",
        "argmax",
        "softmax",
        "log_softmax",
        "sigmoid",
        "tolist",
        "numpy",
        "requires_grad_",
        "mean",
        "sum",
        "unsqueeze",
        "squeeze",
        "view",
        "reshape",
        "permute",
        "transpose",
        "flatten",
        "clone",
        "contiguous",
        "long",
        "chunk",
        "norm",
        "clamp",
        "exp",
        "log",
        "sqrt",
        "pow",
        "abs",
        "max",
        "min",
        "std",
        "var",
        "gather",
        "scatter",
        "masked_fill",
        "expand",
        "repeat",
        "detach_",
        "topk",
        "sort",
        "bmm",
        "matmul",
        "mm",
        "numel",
        "dim",
    ]
)
MOVES = frozenset({"to", "cuda", "cpu", "half", "float", "double", "bfloat16"})  # of tensors and modules alike
REDUCTIONS = frozenset({"mean", "sum", "norm", "std", "var", "prod"})
SCALAR_LOSSES = frozenset(
    f"torch.nn.functional.{n}"
    for n in [
        "cross_entropy",
        "nll_loss",
        "mse_loss",
        "l1_loss",
        "smooth_l1_loss",
        "huber_loss",
        "binary_cross_entropy",
        "kl_div",
        "binary_cross_entropy_with_logits",
        "hinge_embedding_loss",
        "margin_ranking_loss",
        "cosine_embedding_loss",
        "triplet_margin_loss",
        "ctc_loss",
        "poisson_nll_loss",
        "gaussian_nll_loss",
        "multi_margin_loss",
        "soft_margin_loss",
    ]
)


def _default(method: Definition) -> bool:
    """Whether all that a method does is to return a constant: what derives from its class is there to say otherwise."""
    body = getattr(method.node, "body", ())
    if not isinstance(body, list) or not isinstance(body[-1], ast.Return):
        return False
    return isinstance(body[-1].value, ast.Constant) and all(
        isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant) for stmt in body[:-1]
    )


class Calling(Reading):
    """What a call returns and does."""

    def call(self, callee: Value, args: list[Value], keywords: dict[str, Value], node: ast.Call) -> Value:
        target = callee.target
        named = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
        if (
            named == "forward"
            and callee.receiver is not None
            and callee.receiver.kind == "module"
            and (args or keywords)
        ) and not isinstance(
            getattr(node.func, "value", None), ast.Call
        ):  # super().forward(x) is a part of this forward
            return self.forward(callee.receiver, args, keywords, node, self.project.class_named(callee.receiver.type))
        if isinstance(target, Definition):
            full = [callee.receiver, *args] if target.bound and callee.receiver is not None else args
            return self.call_definition(target, full, keywords, node, receiver=callee.receiver)
        if isinstance(target, Class):
            return self.construct(target, args, keywords, node)
        if isinstance(target, Partial):
            return self.call(target.callee, [*target.args, *args], {**target.keywords, **keywords}, node)
        if callee.kind == "unknown" and isinstance(node.func, ast.Attribute) and node.func.attr == "enter_context":
            return self.duck(UNKNOWN, "enter_context", args, keywords, node)
        if callee.kind == "method" and isinstance(target, Row):
            return self.from_row(target, callee.receiver or UNKNOWN, args, keywords, node, callee.type)
        if callee.kind in ("function", "class", "library") and callee.type:
            row = self.library.lookup(callee.type)
            if row is not None:
                return self.call_library(callee.type, row, args, keywords, node)
            if callee.kind == "library":
                return self.unknown_call(callee, args, keywords, node, callee.type)
        if callee.kind in ("module", "engine", "instance") and (callee.type or args or keywords):
            return self.call_instance(callee, args, keywords, node)
        if callee.kind == "unknown" and isinstance(node.func, ast.Attribute) and callee.receiver is not None:
            return self.duck(callee.receiver, node.func.attr, args, keywords, node)
        return self.unknown_call(callee, args, keywords, node, written(node.func) if node is not None else "")

    def call_definition(
        self, target: Definition, args: Sequence[Value | None], keywords: dict[str, Value], site: ast.AST,
        receiver: Value | None = None,
    ) -> Value:  # fmt: skip
        if target.cls is not None and _default(target):
            return UNKNOWN
        given = [a if a is not None else UNKNOWN for a in args]
        bound = self.project.bind(target, given, keywords, self)
        flow = self.project.summary(target, bound, self.depth + 1)
        if flow is None:
            deps = together(self.held(v) for v in (*given, *keywords.values()))
            node = self.node(Origin.CALL, site, target.name, inputs=deps)
            return Value("unknown", frozenset({node}))
        result = self.splice(flow, bound, site, receiver)
        if not result.device and result.kind in ("tensor", "unknown", "list"):
            if self.placed((*given, *keywords.values())) in ("device", "model"):
                return result.but(device="model")
        return result

    def splice(self, flow: Flow, bound: dict[str, Value], site: ast.AST, receiver: Value | None) -> Value:
        """Replace a call by what the callee does, in the caller's own terms."""
        return Splice(self, flow, bound, site).result()

    def construct(self, cls: Class, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
        kind = self.project.class_kind(cls)
        obj = self.make(kind, node, type=cls.full_name, name=cls.name)
        value = Value(kind, type=cls.full_name, objs=(obj,), site=node)
        init = self.names.method(cls, "__init__")
        if init is not None and (
            not self.project.inert(init) or any(self.held(v) for v in (*args, *keywords.values()))
        ):
            self.call_definition(init, [value, *args], keywords, node, receiver=value)
        obj.items.update(dict(enumerate(args)))
        obj.items.update(keywords)
        self.event("build", node, value=value, receiver=Value("class", type=cls.full_name, target=cls),
                   args=tuple(args), keywords=keywords, name=kind, callee=cls)  # fmt: skip
        return value

    def call_instance(self, callee: Value, args: list[Value], keywords: dict[str, Value], node: ast.Call) -> Value:
        cls = self.project.class_named(callee.type)
        call = self.names.method(cls, "__call__") if cls is not None else None
        if call is not None:
            return self.call_definition(call, [callee, *args], keywords, node, receiver=callee)
        if callee.kind in ("module", "engine") and (args or keywords):
            return self.forward(callee, args, keywords, node, cls)
        if cls is not None:
            method = self.names.method(cls, "__call__") or self.names.method(cls, "forward")
            if method is not None:
                return self.call_definition(method, [callee, *args], keywords, node, receiver=callee)
        return self.unknown_call(callee, args, keywords, node, written(node.func))

    def forward(
        self, module: Value, args: list[Value], keywords: dict[str, Value], node: ast.Call, cls: Class | None
    ) -> Value:
        """A module is called: the result hangs on its weights, and on its arguments."""
        inputs = together(self.held(v) for v in (*args, *keywords.values()))
        mark = self.node(Origin.FORWARD, node, written(node.func), module=module, inputs=inputs)
        row = self.library.lookup(module.type) if module.type and cls is None else None
        if row is not None and row.graph == "none":
            return Value("unknown")
        deps = frozenset({mark}) if self.grad is not Grad.OFF else EMPTY
        device = self.device_of_forward(module, (*args, *keywords.values()))
        result = Value(
            "tensor" if row is not None and row.forward == "tensor" else "unknown", deps, site=node, device=device
        )
        if row is not None:
            if row.items:
                parts = tuple(Value("tensor" if i in ("tensor", "same") else i, deps, device=device) for i in row.items)
                result = Value("tuple", deps, items=parts, site=node)
            if not row.parameters and row.forward in ("tensor", "same"):
                # Nothing of its own to learn: only the arguments' graph.
                deps = inputs if self.grad is not Grad.OFF else EMPTY
                scalar = module.type.rpartition(".")[2].endswith("Loss")
                return Value("tensor", deps, site=node, scalar=scalar, device=device)
        if cls is not None:
            shape = self.project.forward_shape(cls, [module, *args], keywords, self)
            if shape is not None:
                result = self.shaped(shape, deps, inputs, device)
        self.event("forward", node, value=result, receiver=module, args=tuple(args), keywords=keywords, node=mark)
        return result

    def device_of_forward(self, module: Value, inputs: Sequence[Value]) -> str:
        """Where the result of a forward is: on the device if that is known of the weights or of an input."""
        place = self.placed((*inputs, module) if module.device == "device" else inputs)
        return "device" if place == "device" else "" if place == "host" else "model"

    def shaped(self, shape: Value, deps: frozenset[Node], inputs: frozenset[Node], device: str) -> Value:
        """A result of a project module, part by part: what its ``forward`` only hands on has the graph it came with."""
        if shape.items is not None:
            return Value("tuple", deps, items=tuple(self.shaped(i, deps, inputs, device) for i in shape.items))
        if shape.kind in GRAPHLESS and not shape.deps:
            return Value(shape.kind, const=UNSET)
        if shape.kind == "tensor" and not shape.deps:
            return Value("tensor", device=device)
        if shape.kind == "list" and all(o.elem is not None and o.elem.kind in GRAPHLESS for o in shape.objs):
            return Value("list")  # of numbers, as `tolist` gives
        if shape.deps and all(n.origin is Origin.PARAMETER for n in shape.deps):
            deps = inputs if self.grad is not Grad.OFF else EMPTY
        kind = shape.kind if shape.kind in ("tensor", "dict", "list", "tuple", "distribution") else "unknown"
        named = shape.type if kind == "distribution" else ""
        return Value(kind, deps, named, scalar=shape.scalar, device=device)

    def call_library(self, name: str, row: Row, args: list[Value], keywords: dict[str, Value], node: ast.Call) -> Value:
        name = self.library.canonical(name)
        special = SPECIAL.get(name)
        if special is not None:
            return special(self, args, keywords, node, row)
        if row.kind:
            return self.build(name, row, args, keywords, node)
        return self.from_row(row, UNKNOWN, args, keywords, node, name)

    def build(self, name: str, row: Row, args: list[Value], keywords: dict[str, Value], node: ast.Call) -> Value:
        """An instance of a library class is made."""
        kind = row.kind
        if kind == "context":
            return self.from_row(row, UNKNOWN, args, keywords, node, name)
        obj = self.make(
            "dict" if kind in ("defaultdict", "counter") else kind, node, type=name, name=name.rpartition(".")[2]
        )
        value = Value(obj.kind if obj.kind in CONTAINERS else kind, type=name, objs=(obj,), site=node)
        if kind in ("distribution", "tensor", "packed", "batch_encoding", "unknown"):
            value.deps = (
                together(self.held(a) for a in (*args, *keywords.values())) if self.grad is not Grad.OFF else EMPTY
            )
        if kind == "deque":
            limit = keywords.get("maxlen", args[1] if len(args) > 1 else NOTHING)
            obj.bounded = limit.kind != "none"
        if kind in CONTAINERS and args and kind != "defaultdict":
            self.put(obj, self.element(args[0], node))
        if kind == "queue":
            limit = keywords.get("maxsize", args[0] if args else Value("number", const=0))
            obj.bounded = limit.const is UNSET or limit.const not in (0, None)
        if kind == "defaultdict":
            obj.elem = self.factory(args[0] if args else UNKNOWN, node)
        if kind in ("module", "dataset"):
            obj.items.update(dict(enumerate(args)))
            obj.items.update(keywords)
        if kind == "module":
            if any(b in ("torch.nn.Module",) for b in ("torch.nn.Module",)) and any(a.kind == "module" for a in args):
                inner = [a for a in args if a.kind == "module"]
                obj.items["wrapped"] = inner[0]
        if kind == "optimizer":
            model = self.owner_of(args[0] if args else keywords.get("params", UNKNOWN))
            obj.model = model
            for o in model.objs if model is not None else ():
                o.trains = True
        if kind in ("scheduler", "optimizer", "scaler", "module"):
            self.event("build", node, value=value, args=tuple(args), keywords=keywords, name=kind,
                       receiver=Value("class", type=name))  # fmt: skip
        return value

    def factory(self, maker: Value, node: ast.Call) -> Value:
        name = maker.type
        if name in ("list", "set", "dict"):
            inner = self.make(name, node, "factory")
            return Value(name, objs=(inner,))
        if name in ("float", "int"):
            return Value("number")
        if isinstance(maker.target, Class):
            return self.construct(maker.target, [], {}, node)
        return UNKNOWN

    def owner_of(self, params: Value) -> Value | None:
        """The model whose parameters these are, where one can be told."""
        if params.kind in ("parameters", "parameter") and params.receiver is not None:
            return params.receiver
        if params.kind in ("list", "tuple") and params.obj is not None and params.obj.elem is not None:
            return self.owner_of(params.obj.elem)
        if params.kind == "dict" and params.obj is not None and "params" in params.obj.items:
            return self.owner_of(params.obj.items["params"])
        return None

    def from_row(
        self, row: Row, receiver: Value, args: list[Value], keywords: dict[str, Value], node: ast.AST | None,
        name: str = "",
    ) -> Value:  # fmt: skip
        """Apply what the library says of a function, method or attribute."""
        effects = row.effects
        inputs: list[Value] = [receiver, *args, *(v for k, v in keywords.items() if k not in ("*",))]
        if effects and node is not None:
            done = self.apply_effects(row, receiver, args, keywords, node, name)
            if done is not None:
                return done
        if row.graph == "none":
            below = together(self.held(v) for v in inputs)
            if below:
                self.reduce(below, detached=name.rpartition(".")[2] in ("detach", "data", "detach_"))
        returns = row.returns
        if returns == "same":
            subject = receiver if receiver is not UNKNOWN else args[0] if args else UNKNOWN
            if args and receiver.kind in HANDLERS:  # scaler.scale(loss), accelerator.prepare(model)
                subject = args[0]
            if row.graph == "none":
                subject = subject.but(deps=EMPTY, kind="tensor" if subject.kind == "unknown" else subject.kind, path="")
            if row.device == "host":
                return subject.but(device="host") if subject.kind != "module" else subject
            if row.device == "argument":
                return subject.but(device=self.device_of(args, keywords) or subject.device)
            return subject
        if returns == "arguments":
            if len(args) == 1:
                return args[0]
            return Value("tuple", items=tuple(args))
        if returns == "element":
            subject = receiver if receiver is not UNKNOWN else args[0] if args else UNKNOWN
            return self.element(subject, node)
        if returns == "parameters" or (returns == "iterator" and row.of == "parameter"):
            return Value("parameters", receiver=receiver, type="named" if row.items else "")
        if returns == "instance":
            return self.instance(name.rpartition(".")[0], args, keywords, node or self.stmt)
        deps = EMPTY
        if row.graph == "arguments":
            deps = together(self.held(v) for v in inputs)
        elif row.graph == "unknown" and returns in ("tensor", "unknown", "tuple", "list", "dict"):
            below = together(self.held(v) for v in inputs)
            deps = (
                frozenset({self.node(Origin.CALL, node or self.stmt, name, key="row", inputs=below)})
                if below
                else EMPTY
            )
        if self.grad is Grad.OFF and deps and not self.passes_through(name):
            deps = EMPTY
        device = (
            row.device
            if row.device == "host" and "device" not in keywords
            else self.device_of(args, keywords) or receiver.device
            if row.device == "argument"
            else self.device_of([], {"device": keywords["device"]})
            if "device" in keywords
            else self.placed(inputs)
        )
        kind = "number" if returns == "shape" and args else returns  # `x.size(0)`
        if row.items and row.of == "elements" and receiver is not UNKNOWN:  # pairs, one for each entry
            obj = self.make("iterator", node or self.stmt)
            held = self.element(receiver, node)
            obj.elem = Value("tuple", items=tuple(held if i == "element" else Value(i) for i in row.items))
            return Value(returns, objs=(obj,), device=device)
        if row.items and (not row.items_with or row.items_with in keywords):
            parts = tuple(
                self.element(receiver, node)
                if i == "element"
                else Value(
                    "tensor" if i in ("tensor", "same") else i,
                    deps if i in ("tensor", "same") else EMPTY,
                    device=device,
                )
                for i in row.items
            )
            return Value("tuple", deps, items=parts, device=device)
        objs: tuple[Obj, ...] = ()
        if kind in CONTAINERS or kind == "defaultdict":
            obj = self.make("dict" if kind == "defaultdict" else kind, node or self.stmt)
            kind = obj.kind
            element = self.element_of(row, receiver, args, node)
            if element is not None:
                self.put(obj, element)
            objs = (obj,)
        elif kind in ("iterator", "tuple") and row.of in ("tensor", "element", "elements", "argument", "arguments"):
            element = self.element_of(row, receiver, args, node)
            obj = self.make("iterator", node or self.stmt)
            if element is not None:
                self.put(obj, element if row.of != "tensor" else Value("tensor", deps, view=row.view, device=device))
            objs = (obj,)
            kind = "iterator" if kind == "iterator" else "tuple"
        elif kind == "module":
            obj = self.make("module", node or self.stmt, name=name.rpartition(".")[2])
            objs = (obj,)
            if node is not None:
                self.event("build", node, value=Value("module", objs=objs), args=tuple(args), keywords=keywords,
                           name="module", receiver=Value("class", type=name))  # fmt: skip
        subject = receiver if receiver is not UNKNOWN else args[0] if args else UNKNOWN
        view = row.view and subject.kind in ("tensor", "unknown")
        scalar = (
            name.rpartition(".")[2] in REDUCTIONS
            and not [a for a in args[(0 if receiver is not UNKNOWN else 1) :] if a.kind == "number"]
            and "dim" not in keywords
            and "axis" not in keywords
        )
        if (
            name in SCALAR_LOSSES
            and keywords.get("reduction", UNKNOWN).const in (UNSET, "mean", "sum")
            and "reduction" not in keywords
        ):
            scalar = True
        return Value(
            kind,
            deps,
            objs=objs,
            device=device,
            view=view,
            scalar=scalar or (subject.scalar and row.graph == "arguments" and not args),
            site=node,
        )

    def instance(self, name: str, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
        """What a class's own method makes of it: ``AutoModel.from_pretrained(…)``."""
        row = self.library.lookup(name)
        if row is None or not row.kind:
            return Value("instance", site=node)
        name = self.library.canonical(name)
        value = Value(row.kind, type=name, objs=(self.make(row.kind, node, type=name),), site=node)
        self.event("build", node, value=value, args=tuple(args), keywords=keywords, name=row.kind,
                   receiver=Value("class", type=name))  # fmt: skip
        return value

    def element_of(self, row: Row, receiver: Value, args: list[Value], node: ast.AST | None) -> Value | None:
        if row.of == "element":
            return self.element(receiver if receiver is not UNKNOWN else args[0] if args else UNKNOWN, node)
        if row.of in ("elements", "argument", "arguments") and args:
            value = args[0] if row.of != "elements" else self.element(args[0], node)
            for other in args[1:]:
                value = join(value, other if row.of != "elements" else self.element(other, node))
            return value
        return Value(row.of) if row.of in ("number", "string") else None

    def apply_effects(
        self, row: Row, receiver: Value, args: list[Value], keywords: dict[str, Value], node: ast.AST, name: str
    ) -> Value | None:
        """Note what a call does besides returning. A value returned here is the call's result."""
        effects = row.effects
        last = name.rpartition(".")[2]
        if "backward" in effects:
            handler = receiver.kind in (*HANDLERS, "module", "optimizer", "instance")
            if not handler and args and self.held(args[0]) and receiver.kind == "unknown":
                own = self.held(receiver)  # accelerator.backward(loss), not loss.backward(gradient)
                handler = all(n.origin in (Origin.PARAMETER, Origin.PLACE) for n in own)
            self.backward(args[0] if handler and args else receiver, keywords, node, args)
            return NOTHING
        if "differentiates" in effects:
            keep = keywords.get("retain_graph", keywords.get("create_graph", NOTHING)).const is True
            for value in (*args, *keywords.values()):
                self.mark(self.held(value), retain=keep, wanted=True)
            self.event("grad", node, args=tuple(args), keywords=keywords)
            return None
        if "step" in effects and receiver.kind in (
            "optimizer",
            "scaler",
            "engine",
            "unknown",
            "scheduler",
            "accelerator",
        ):
            self.event("step", node, receiver=receiver, args=tuple(args), keywords=keywords, name=receiver.kind)
            for value in args:
                if isinstance(value.target, Definition):
                    self.call_definition(value.target, [], {}, node)
                elif value.kind in ("tensor",) or (value.kind == "unknown" and value.deps):
                    self.escape(value.deps)
            return None
        if "loads" in effects and row.returns in ("unknown", "dict"):
            obj = self.make(row.returns, node, type=LOADED)
            value = Value(row.returns, objs=(obj,), device="host" if row.device == "host" else "", site=node)
            self.event("load", node, value=value, args=tuple(args), keywords=keywords, name=name)
            return value
        if "restores" in effects:
            state = args[0] if args else keywords.get("state_dict", UNKNOWN)
            self.event("restore", node, value=state, receiver=receiver, keywords=keywords)
            return None
        if "zero_grad" in effects:
            flag = keywords.get("set_to_none", args[0] if args else Value(const=UNSET))
            self.event(
                "zero_grad",
                node,
                value=flag,
                receiver=receiver,
                args=tuple(args),
                keywords=keywords,
                name=receiver.kind,
            )
            return None
        if "eval" in effects or "train" in effects:
            mode = args[0].const if args else keywords.get("mode", Value(const="eval" not in effects)).const
            if "eval" in effects:
                mode = False
            self.event(
                "eval" if mode is False else "train", node, receiver=receiver, value=args[0] if args else UNKNOWN
            )
            for obj in receiver.objs:
                if mode is not True:
                    obj.evaluates = True
                if mode is not False:
                    obj.trains = True
            return None
        if "freeze" in effects or "requires_grad" in effects or "unfreeze" in effects:
            flag = args[0] if args else keywords.get("requires_grad", Value("bool", const=True))
            if flag.const is False:
                made = receiver.kind == "unknown" and not receiver.objs
                if made:  # nobody knows what it is, but it is frozen from here on
                    receiver = receiver.but(objs=(self.make("unknown", node),))
                self.freeze(receiver, node)
                return receiver if made else None
            if flag.const is True and receiver.kind not in ("module", "parameter", "parameters"):
                target = (
                    node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
                )
                self.input_gradient(receiver, target, node)
                leaf = self.node(Origin.WEIGHT, node, "input")
                leaf.wanted, leaf.here = True, leaf.here | {"wanted"}
                return receiver.but(kind="tensor", deps=receiver.deps | {leaf}, leaf=True)
            return None
        mode = MODES.get(next((e for e in effects if e in MODES), ""))
        if mode is not None or "set_grad_enabled" in effects:
            if "set_grad_enabled" in effects:
                flag = args[0] if args else keywords.get("mode", UNKNOWN)
                mode = (
                    Grad.UNKNOWN
                    if flag.const is UNSET or isinstance(flag.const, Symbol)
                    else Grad.ON
                    if flag.const
                    else Grad.OFF
                )
                if isinstance(self.stmt, ast.Expr) and self.stmt.value is node:
                    self.grad = mode
            elif "inference_mode" in effects or "no_grad" in effects:
                flag = args[0] if args else keywords.get("mode", Value("bool", const=True))
                if flag.kind == "function" and flag.target is not None:
                    return flag  # no_grad(fn)
                if flag.const is UNSET:
                    mode = Grad.UNKNOWN
                elif flag.const is False:
                    mode = Grad.ON if "inference_mode" in effects else mode
            return Value("context", const=Mode(mode or Grad.UNKNOWN))
        if effects & STORES and receiver.objs:
            how = next(e for e in effects if e in STORES)
            self.store_method(how, receiver, args, keywords, node)
            if how == "setdefault" or row.returns == "none":
                return self.element(receiver, node) if how == "setdefault" else NOTHING
            return None
        if effects & {"pop", "clear"} and receiver.objs:
            for obj in receiver.objs:
                self.clear(obj, node, "pop" if "pop" in effects else "clear")
            return self.element(receiver, node) if "pop" in effects else NOTHING
        if "detach_" in effects:
            path = receiver.path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                path = chain(node.func.value)
            clean = receiver.but(deps=EMPTY)
            if path:
                self.env[path] = clean
            self.event("detach", node, receiver=receiver)
            return clean
        if "in_place" in effects and args and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            added = args[0]
            target = node.func.value
            if last in ("add_", "sub_", "lerp_", "addcmul_", "addcdiv_", "copy_", "mul_", "div_"):
                if last in ("add_", "lerp_", "sub_"):
                    self.total(target, receiver, added, node, node.args[0] if node.args else node)  # type: ignore[arg-type]
                self.event(
                    "write", node, value=added, receiver=receiver, name=last, expr=node.args[0] if node.args else None
                )
                deps = (receiver.deps | self.held(added)) if self.grad is not Grad.OFF else receiver.deps
                value = receiver.but(kind="tensor" if receiver.kind == "unknown" else receiver.kind, deps=deps)
                if chain(target):
                    self.env[chain(target)] = value
                return value
        if "hook" in effects:
            self.event("hook", node, receiver=receiver, args=tuple(args), keywords=keywords, name=last)
            for value in (*args, *keywords.values()):
                if isinstance(value.target, Definition):
                    self.project.hooked(value.target, receiver, last, self)
            return Value("handle", site=node)
        if "calls" in effects:
            for value in (*args, *keywords.values()):
                if isinstance(value.target, Definition) and value.kind == "function":
                    self.project.called_by(value.target, row, self.grad)
        if "autocast" in effects or "profile" in effects or "anomaly" in effects:
            self.event("context", node, receiver=receiver, args=tuple(args), keywords=keywords, name=name)
            return Value("context")
        return None

    def store_method(
        self, how: str, receiver: Value, args: list[Value], keywords: dict[str, Value], node: ast.AST
    ) -> None:
        exprs = node.args if isinstance(node, ast.Call) else []
        expr = exprs[-1] if exprs else None
        for obj in receiver.objs:
            if how == "extend":
                value = self.element(args[0], node) if args else UNKNOWN
                self.store(obj, value, node, how, expr, holder=receiver.receiver)
            elif how == "update":
                for i, arg in enumerate(args):
                    if arg.obj is not None and arg.obj.items:
                        for key, item in arg.obj.items.items():
                            self.store(
                                obj,
                                item,
                                node,
                                how,
                                exprs[i] if i < len(exprs) else None,
                                key,
                                holder=receiver.receiver,
                            )
                    else:
                        self.store(
                            obj,
                            self.element(arg, node),
                            node,
                            how,
                            exprs[i] if i < len(exprs) else None,
                            holder=receiver.receiver,
                        )
                for key, item in keywords.items():
                    self.store(obj, item, node, how, None, key, holder=receiver.receiver)
            elif how in ("append", "add", "put", "insert", "setdefault") and args:
                self.store(
                    obj,
                    args[-1],
                    node,
                    how,
                    expr,
                    index=args[0] if len(args) > 1 else UNKNOWN,
                    holder=receiver.receiver,
                )

    def backward(self, subject: Value, keywords: dict[str, Value], node: ast.AST, args: list[Value]) -> None:
        keep = keywords.get("retain_graph", NOTHING)
        create = keywords.get("create_graph", NOTHING)
        retain = keep.const is not None and keep.const is not False if keep is not NOTHING else False
        retain = retain or create.const is True
        deps = self.held(subject)
        self.mark(deps, retain=bool(retain))
        self.prove(deps)
        if subject.kind == "unknown" and subject.deps and not subject.objs:
            subject.kind, subject.part = "tensor", False  # so it is one
        expr: ast.AST | None = None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            expr = node.func.value
        self.event("backward", node, value=subject, keywords=keywords, args=tuple(args), expr=expr, receiver=subject)

    def duck(self, owner: Value, attr: str, args: list[Value], keywords: dict[str, Value], node: ast.Call) -> Value:
        """A method of something of which nothing is known, judged by what its name always means."""
        if attr == "enter_context" and args:
            mode = self.mode_of(args[0])
            if mode is not None:
                self.grad = mode
            return args[0]
        given = (*args, *keywords.values())
        if owner.kind == "unknown" and (
            (attr == "eval" and not given) or (attr == "train" and len(given) == 1 and isinstance(given[0].const, bool))
        ):
            row = self.library.method("module", attr)
            assert row is not None
            return self.from_row(row, owner, args, keywords, node, attr)
        if attr in MOVES:
            return owner.but(
                device="host"
                if attr == "cpu"
                else self.device_of(args, keywords) or owner.device
                if args or keywords or attr == "cuda"
                else owner.device
            )
        evidence = self.project.role_of(owner, self)
        if owner.kind == "unknown" and of_file(owner):
            if attr in ("get", "pop") and args:
                return self.entry_of(owner, args[0])
            row = self.library.method("dict", attr)
            if row is not None:
                return self.from_row(row, owner.but(kind="dict"), args, keywords, node, attr)
        if evidence:
            row = self.library.method(evidence, attr)
            if row is not None:
                return self.from_row(row, owner.but(kind=evidence), args, keywords, node, attr)
        row = self.library.duck(attr)
        if row is not None:
            return self.from_row(row, owner, args, keywords, node, attr)
        row = self.library.method("tensor", attr)
        if row is not None and owner.deps and (attr in TENSOR_ONLY or not self.library.method("list", attr)):
            tensor = owner.but(kind="tensor") if attr in TENSOR_ONLY else owner
            return self.from_row(row, tensor, args, keywords, node, attr)
        if row is not None and attr in TENSOR_ONLY:
            return self.from_row(row, owner.but(kind="tensor"), args, keywords, node, attr)
        for kind in ("list", "dict", "deque", "set"):
            found = self.library.method(kind, attr)
            if found is not None and owner.objs and found.effects & (STORES | {"pop", "clear"}):
                return self.from_row(found, owner, args, keywords, node, attr)
        return self.unknown_call(Value("unknown", receiver=owner, objs=owner.objs), args, keywords, node, attr)

    def unknown_call(
        self, callee: Value, args: list[Value], keywords: dict[str, Value], node: ast.AST, name: str
    ) -> Value:
        """Something unknown is called. Its result may hang on its arguments, and on weights that nobody here sees."""
        values = [*args, *keywords.values()]
        deps = together(self.held(v) for v in values)
        if callee.receiver is not None:
            deps = together((deps, self.held(callee.receiver)))
        optimizing = any(v.kind in ("optimizer", "scaler") for v in values)
        if deps and (optimizing or DIFFERENTIATES.search(name.rpartition(".")[2])):
            self.escape(deps)
        for value in values:
            if value.kind in CONTAINERS and value.obj is not None and value.obj.node is not None:
                self.escape((value.obj.node,))
        for value in values:
            if isinstance(value.target, Definition) and value.kind == "function":
                self.project.taken(value.target)
        mark = self.node(Origin.CALL, node, name, module=callee, inputs=deps)
        receiver = callee.receiver if callee.receiver is not None else UNKNOWN
        near = receiver.kind == "module" or self.placed((receiver, *values)) in ("device", "model")
        device = "model" if near else ""
        if self.grad is Grad.OFF:
            return Value("unknown", EMPTY, site=node, device=device)
        return Value("unknown", frozenset({mark}), site=node, device=device)
