"""What names are for, by how code uses them."""

from __future__ import annotations

import ast

import pytest

from memlint.roles import Use, uses

ROLES = """
x.unscale_(o)                               scaler
x.get_scale()                               scaler
x.scale(loss); x.update()                   scaler
x.scale(loss)
x.param_groups                              optimizer
x.zero_grad()                               optimizer
x.zero_grad(); x.step()                     optimizer
x.train(); x.zero_grad(); x.step()          optimizer
x.train(); x.zero_grad()
x.parameters(); x.zero_grad()               module
x.zero_grad(); x(1)                         module
x.train(); x(1)                             module
x.step(); x.zero_grad(); x(1)               module
x.backward(loss); x.prepare(m)              accelerator
x.backward(loss); x.unwrap_model(m)         accelerator
x.backward(loss); x.gather_for_metrics(m)   accelerator
x.backward()
x.eval()                                    module
x.eval(1)
y.to(device=x)                              device
torch.device(x)                             device
torch.load(f, map_location=x)               device
torch.zeros(x)
y.to(device=x); x(1)
y.to(device=x)\\nfor i in x: pass
x.y
x
"""


@pytest.mark.parametrize("line", ROLES.strip().splitlines())
def test_role(line: str) -> None:
    code, _, role = line.partition("  ")
    found = uses(ast.parse(code.strip().replace("\\n", "\n"))).get("x", Use())
    assert found.role == role.strip()


def test_uses_are_added_up() -> None:
    use = Use()
    use.merge(Use({"step"}, {"eval"}, called=True))
    use.merge(Use({"train"}, iterated=True))
    use.merge(Use(places=True))
    assert use == Use({"step", "train"}, {"eval"}, True, True, True)
    assert not (Use().called or Use().iterated or Use().places)
