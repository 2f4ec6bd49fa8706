"""Scopes and bindings: which assignments a name can refer to at a place."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Final

import libcst as cst

from torchlint.caching import cached_method
from torchlint.semantic.scope.bindings import REGISTERING, UNBOUND, Binding, How, Scope, dotted
from torchlint.semantic.scope.blocks import Blocks, Fork
from torchlint.semantic.syntax.tree import Tree

__all__ = ["Binding", "How", "Scope", "Scopes", "dotted"]


_COMPREHENSIONS: Final = (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)
_SCOPES: Final = (cst.FunctionDef, cst.Lambda, cst.ClassDef, *_COMPREHENSIONS)
_BINDS_FIRST: Final = frozenset({cst.FunctionDef, cst.ClassDef, cst.Param, cst.For, cst.CompFor})
"""Statements that bind their name before their body runs."""
_FRAMES: Final = frozenset({cst.FunctionDef, cst.ClassDef, cst.Lambda})
_AT: Final = attrgetter("at")
_PROPERTY: Final = "property"
"""The end of the name of a decorator that makes a method an attribute."""
_Identity = tuple[cst.CSTNode, tuple[int, ...], str, str]
"""The identity of a binding: its node, the path into it, and its names."""


def _identity(binding: Binding) -> _Identity:
    return binding.node, binding.path, binding.name, binding.qualified


class Scopes(Blocks):
    """Every binding of a file, and which of them reach a use."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self.modules = tuple(Scope(module, None) for module in tree.modules)
        """The scope of the file, then those of the linked modules."""
        self.module = self.modules[0]
        opened: dict[cst.CSTNode, Scope] = {scope.node: scope for scope in self.modules}
        self._around: list[Scope | None] = [None] * len(tree.nodes)
        """The scope in which each node is evaluated, by rank, as far as it is known."""
        for scope in self.modules:
            self._around[tree.order(scope.node)] = scope
        self.star_imports: list[str] = []
        self._stars: dict[cst.CSTNode, list[tuple[cst.ImportFrom, str]]] = {}
        """The star imports of each module."""
        self._scopes = opened.copy()
        self._opened = opened.copy()
        self._readers: dict[_Identity, list[cst.Name]] = {}
        self._read_words: set[str] = set()
        self._stored: dict[cst.CSTNode, Binding] = {}
        self._origins: dict[Binding, Binding] = {}
        """The binding in its own module of each binding that an import makes."""
        self._aliases: dict[str, dict[str, None]] = {}
        self._replaced: Mapping[Binding, Iterable[Binding]] = {}
        """The bindings that imports make, by the import as written."""
        opening = [node for kind in _SCOPES for node in tree.all(kind)]
        for node in opening:
            self._open(node)
        for node in opening:
            self.scope_at(node)
        self._collect()

    def stars(self, node: cst.CSTNode) -> list[str]:
        """Return the modules whose names a star import binds in the module of a node."""
        return [module for _, module in self._stars.get(self.tree.module_of(node), ())]

    def first_star(self, module: cst.CSTNode) -> cst.ImportFrom | None:
        """Return the first star import of a module."""
        return self._stars[module][0][0] if module in self._stars else None

    def home(self, node: cst.CSTNode) -> cst.FunctionDef | cst.Module:
        """Return the function whose code a node belongs to, else its module."""
        return self.function(node) or self.tree.module_of(node)

    def region(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the body of the function whose code a node belongs to, else its module."""
        home = self.home(node)
        return home.body if isinstance(home, cst.FunctionDef) else home

    def module_bindings(self) -> Iterator[Binding]:
        """Yield the bindings at the top level of the file and of the linked modules."""
        for scope in self.modules:
            for bindings in scope.bindings.values():
                yield from bindings

    def module_scope(self, node: cst.CSTNode) -> Scope:
        """Return the scope of the module that contains a node."""
        return self._scopes[self.tree.module_of(node)]

    @cached_property
    def imports(self) -> dict[str, list[str]]:
        """The module-level names with a single import as their binding, by qualified name."""
        found: dict[str, list[str]] = {}
        for bound, bindings in self.module.bindings.items():
            hows = {binding.how for binding in bindings}
            things = {binding.qualified for binding in bindings}
            if "." not in bound and hows == {How.IMPORT} and len(things) == 1:
                found.setdefault(str(things.pop()), []).append(bound)
        return found

    def bindings(self) -> list[Binding]:
        """Return every binding of the file, scope by scope."""
        return self._bindings

    @cached_property
    def _bindings(self) -> list[Binding]:
        named = [
            bindings for scope in self._scopes.values() for bindings in scope.bindings.values()
        ]
        return [binding for bindings in named for binding in bindings]

    # -- scopes ---------------------------------------------------------------

    def scope_at(self, node: cst.CSTNode) -> Scope:
        """Return the scope that a scope node opens."""
        found = self._scopes.get(node)
        if found is None:
            found = self._opened[node]
            found.parent = self.scope_at(self.scope(node).node)
            self._scopes[node] = found
        return found

    def _open(self, node: cst.CSTNode) -> None:
        """Open a scope and record what is evaluated in it."""
        scope = self._opened[node] = Scope(node, None)
        for child in self.tree.children(node):
            if not self._evaluated_outside(child, node):
                self._around[self.tree.order(child)] = scope

    def scope(self, node: cst.CSTNode) -> Scope:
        """Return the scope in which a node is evaluated."""
        known, outer = self._around, self.tree.outer
        at = self.tree.ranks.get(id(node), 0)
        passed = []
        while (found := known[at]) is None:
            passed.append(at)
            at = outer[at]
        for each in passed:
            known[each] = found
        return found

    def _evaluated_outside(self, child: cst.CSTNode, scope: cst.CSTNode) -> bool:
        if isinstance(scope, cst.FunctionDef):
            return child is not scope.body and child is not scope.params
        if isinstance(scope, cst.ClassDef):
            return child is not scope.body
        return False

    @cached_method
    def function(self, node: cst.CSTNode) -> cst.FunctionDef | None:
        """Return the function (never a lambda) whose body or parameters contain a node."""
        return self.scope(node).function

    def class_of(self, node: cst.CSTNode) -> cst.ClassDef | None:
        """Return the class whose body, methods included, contains a node."""
        return self.scope(node).owner

    # -- bindings -------------------------------------------------------------

    def _collect(self) -> None:
        tree = self.tree
        declared_outward: list[cst.Global | cst.Nonlocal] = [
            *tree.all(cst.Global),
            *tree.all(cst.Nonlocal),
        ]
        for line in declared_outward:
            word = "global" if isinstance(line, cst.Global) else "nonlocal"
            for name_item in line.names:
                self.scope(line).outward[name_item.name.value] = word
        for assign in tree.all(cst.Assign):
            for target in assign.targets:
                self._bind(target.target, How.ASSIGN, assign, assign.value)
        for declared in tree.all(cst.AnnAssign):
            how = How.DECLARED if declared.value is None else How.ASSIGN
            self._bind(declared.target, how, declared, declared.value)
        for augmented in tree.all(cst.AugAssign):
            self._bind(augmented.target, How.AUGMENTED, augmented, augmented.value)
        for walrus in tree.all(cst.NamedExpr):
            self._bind(walrus.target, How.ASSIGN, walrus, walrus.value)
        for loop in tree.all(cst.For):
            self._bind(loop.target, How.LOOP, loop, loop.iter)
        for comprehension in tree.all(cst.CompFor):
            self._bind(comprehension.target, How.LOOP, comprehension, comprehension.iter)
        for item in tree.all(cst.WithItem):
            if item.asname is not None:
                self._bind(item.asname.name, How.WITH, item, item.item)
        for handler in tree.all(cst.ExceptHandler):
            if handler.name is not None:
                self._bind(handler.name.name, How.OTHER, handler, None)
        captures: list[cst.MatchAs | cst.MatchStar] = [
            *tree.all(cst.MatchAs),
            *tree.all(cst.MatchStar),
        ]
        for capture in captures:
            if capture.name is not None:
                self._bind(capture.name, How.OTHER, capture, None)
        for function in tree.all(cst.FunctionDef):
            self._add(self.scope(function), function.name.value, How.FUNCTION, function)
            if any(dotted(each.decorator).endswith(_PROPERTY) for each in function.decorators):
                self._bind_property(function)
        for call in tree.all(cst.Call):
            if type(call.func) is cst.Attribute and call.func.attr.value in REGISTERING:
                self._bind_registered(call)
        for owner in tree.all(cst.ClassDef):
            self._add(self.scope(owner), owner.name.value, How.CLASS, owner)
        for parameter in tree.all(cst.Param):
            drawn = self._mapped(parameter)
            self._add(
                self.scope(parameter),
                parameter.name.value,
                How.PARAMETER if drawn is None else How.LOOP,
                parameter,
                value=parameter.default if drawn is None else drawn,
            )
        self._collect_imports()
        for scope in self._scopes.values():
            for bindings in scope.bindings.values():
                bindings.sort(key=_AT)

    def _mapped(self, parameter: cst.Param) -> cst.BaseExpression | None:
        """Return what a parameter runs over like the name of a loop: `map(lambda x: f(x), xs)`."""
        function = self.tree.parent(self.tree.parent(parameter) or parameter)
        call = self.tree.parent(self.tree.parent(function) or function) if function else None
        if not isinstance(function, cst.Lambda) or not isinstance(call, cst.Call):
            return None
        is_map = isinstance(call.func, cst.Name) and call.func.value == "map"
        fits = is_map and len(call.args) == 2 and len(function.params.params) == 1
        return call.args[1].value if fits and call.args[0].value is function else None

    def opened(self) -> Iterable[Scope]:
        """Return every scope: those of modules, functions, classes and comprehensions."""
        return self._scopes.values()

    def add_stars(self, stars: Iterable[tuple[Scope, Binding]]) -> None:
        """Add the names that star imports bind."""
        for scope, binding in stars:
            bindings = scope.bindings.setdefault(binding.name, [])
            bindings.append(binding)
            bindings.sort(key=_AT)

    def replace(self, replaced: Mapping[Binding, dict[Binding, Binding | None]]) -> None:
        """Put other bindings, each with its origin in another module, in the place of imports."""
        for scope in self._scopes.values():
            linked = {
                name: bindings
                for name, bindings in scope.bindings.items()
                if not replaced.keys().isdisjoint(bindings)
            }
            scope.unlinked = linked
            for name, bindings in linked.items():
                scope.bindings[name] = [
                    each for binding in bindings for each in replaced.get(binding, (binding,))
                ]
        self._replaced = replaced
        for made in replaced.values():
            for binding, origin in made.items():
                if origin is not None:
                    self._origins[binding] = origin
                    if origin.name != binding.name:
                        self._aliases.setdefault(origin.name, {})[binding.name] = None

    def aliases(self, word: str) -> Iterable[str]:
        """Return the other names under which modules import a name of another module."""
        return self._aliases.get(word, ())

    def _add(
        self,
        scope: Scope,
        name: str,
        how: How,
        node: cst.CSTNode,
        value: cst.BaseExpression | None = None,
        path: tuple[int, ...] = (),
        qualified: str = "",
        starred: bool = False,
    ) -> Binding:
        if scope.outward:
            scope = self._outward(scope, name)
        first = type(node) in _BINDS_FIRST
        at = self.tree.order(node) if first else self.tree.end(node) - 1
        binding = Binding(name, how, node, at, value, path, qualified, starred)
        scope.bindings.setdefault(name, []).append(binding)
        return binding

    def _outward(self, scope: Scope, name: str) -> Scope:
        """Return the scope in which a name is bound, following `global` and `nonlocal`."""
        word = scope.outward.get(name)
        if word == "global":
            return self.module_scope(scope.node)
        while word == "nonlocal" and scope.parent is not None:
            scope = scope.parent
            if scope.is_function and name in scope.bindings:
                break
        return scope

    def _bind(
        self,
        target: cst.CSTNode,
        how: How,
        node: cst.CSTNode,
        value: cst.BaseExpression | None,
        path: tuple[int, ...] = (),
        starred: bool = False,
    ) -> None:
        if type(target) is cst.Tuple or type(target) is cst.List:
            items = value.elements if isinstance(value, (cst.Tuple, cst.List)) else ()
            pairwise = (
                how is How.ASSIGN
                and len(items) == len(target.elements)
                and not any(type(e) is cst.StarredElement for e in (*items, *target.elements))
            )
            star = False
            for index, element in enumerate(target.elements):
                star = star or type(element) is cst.StarredElement
                if pairwise:
                    self._bind(element.value, how, node, items[index].value)
                else:
                    inner = How.UNPACKED if how is How.ASSIGN else how
                    self._bind(element.value, inner, node, value, (*path, index), star)
            return
        if type(target) is cst.Name:
            scope = self.scope(target)
            if type(node) is cst.NamedExpr:
                while scope.parent is not None and not (scope.is_function or scope.is_class):
                    scope = scope.parent
            self._stored[target] = self._add(
                scope, target.value, how, node, value, path, "", starred
            )
        elif type(target) is cst.Attribute:
            name = dotted(target)
            owner = self.class_of(target) if name.startswith("self.") else None
            own = owner is not None and name.count(".") == 1
            scope = self.scope_at(owner) if owner is not None and own else self.scope(target)
            if name:
                self._stored[target] = self._add(scope, name, how, node, value, path, "", starred)

    def _bind_property(self, function: cst.FunctionDef) -> None:
        """Bind the attribute that a property computes to what the property returns."""
        for line in self.tree.within(function.body, cst.Return):
            if line.value is not None and self.function(line) is function:
                name = f"self.{function.name.value}"
                self._add(self.scope(function), name, How.ASSIGN, line, line.value)

    def _bind_registered(self, call: cst.Call) -> None:
        """Bind the attribute of a network that `self.register_buffer("mask", value)` makes."""
        owner = self.class_of(call)
        name, value, *_ = [arg.value for arg in call.args] + [None, None]
        if owner is not None and isinstance(name, cst.SimpleString) and value is not None:
            path = f"self.{name.raw_value}"
            self._add(self.scope_at(owner), path, How.ASSIGN, call, value)

    def _collect_imports(self) -> None:
        for line in self.tree.all(cst.Import):
            for alias in line.names:
                full = dotted(alias.name)
                if alias.asname is not None and isinstance(alias.asname.name, cst.Name):
                    name, qualified = alias.asname.name.value, full
                else:
                    name = qualified = full.split(".")[0]
                self._add(self.scope(line), name, How.IMPORT, line, qualified=qualified)
        for source in self.tree.all(cst.ImportFrom):
            module = "." * len(source.relative) + (dotted(source.module) if source.module else "")
            if isinstance(source.names, cst.ImportStar):
                self.star_imports.append(module)
                self._stars.setdefault(self.tree.module_of(source), []).append((source, module))
                continue
            for alias in source.names:
                given = dotted(alias.name)
                name = given
                if alias.asname is not None and isinstance(alias.asname.name, cst.Name):
                    name = alias.asname.name.value
                joint = "" if module.endswith(".") else "."
                self._add(
                    self.scope(source), name, How.IMPORT, source, qualified=module + joint + given
                )

    # -- bindings that reach a use ---------------------------------------------------

    def lookup(self, name: str, scope: Scope) -> Scope | None:
        """Return the scope whose binding `name` refers to when it is read in `scope`."""
        at: Scope | None = scope
        while at is not None:
            if (at is scope or not at.is_class) and name in at.bindings:
                return at
            at = at.parent
        return None

    @cached_method
    def reaching(self, use: cst.CSTNode | None) -> tuple[Binding, ...]:
        """Return every binding whose value a name can have; none for builtins and other nodes."""
        return self.reaching_name(use.value, use, self.scope(use)) if type(use) is cst.Name else ()

    def only(self, use: cst.CSTNode | None) -> Binding:
        """Return the one binding that a name can have, `UNBOUND` if it can have several or none."""
        found = self.reaching(use)
        return found[0] if len(found) == 1 else UNBOUND

    def used_outside(self, binding: Binding, nodes: frozenset[int]) -> bool:
        """Return whether an imported name is exported, or read by other than the given nodes."""
        quoted = {f'"{binding.name}"', f"'{binding.name}'"}
        return any(text.value in quoted for text in self.tree.all(cst.SimpleString)) or any(
            id(name) not in nodes and binding in self.reaching(name)
            for name in self.tree.spelled(binding.name)
        )

    def reaching_name(self, name: str, place: cst.CSTNode, here: Scope) -> tuple[Binding, ...]:
        """Return every binding whose value `name` (dotted too) can have at a place."""
        scope = self.lookup(name, here)
        if scope is None:
            return ()
        bindings = scope.bindings[name]
        if len(bindings) == 1:
            return (bindings[0],)
        if scope is not here:
            # A comprehension runs in place; a function may run at any time.
            inner: Scope | None = here
            while inner is not None and inner is not scope:
                if inner.is_function or inner.is_class:
                    return self._all_of(name, scope)
                inner = inner.parent
        if name in scope.unlinked:
            written = self._flow(scope.unlinked[name], place)
            return tuple(
                each for binding in written for each in self._replaced.get(binding, (binding,))
            )
        return self._flow(bindings, place)

    def at_end(self, scope: Scope, name: str) -> tuple[Binding, ...]:
        """Return the bindings, as written, that a name of a module can have at its end."""
        return self._flow(scope.unlinked.get(name) or scope.bindings[name], scope.node)

    @cached_method
    def _all_of(self, name: str, scope: Scope) -> tuple[Binding, ...]:
        """Return every binding of a name in a scope, the same object on each call."""
        return tuple(scope.bindings[name])

    def _flow(self, bindings: list[Binding], place: cst.CSTNode) -> tuple[Binding, ...]:
        whole = type(place) is cst.Module
        around = (place,) if whole else self.blocks(place)
        known = set(around)
        use = self.tree.end(place) if whole else self.tree.order(place)
        behind = bisect_left(bindings, use, key=_AT)
        reached: list[Binding] = []
        killer: cst.CSTNode | None = None
        settled: Fork | None = None
        unsettled: set[Fork] = set()
        later: dict[cst.CSTNode, Binding] = {}
        for index in range(behind - 1, -1, -1):
            binding = bindings[index]
            if self._is_open(binding, place):
                continue
            if settled is not None and not self.tree.inside(binding.node, settled):
                break
            if self._exclusive(binding, around, known) or self._is_hidden(binding, later, known):
                continue
            home = self._home(binding)
            reached.append(binding)
            if (not home or home[0] in known) and binding.how is not How.AUGMENTED:
                killer = binding.node
                break
            if home and binding.how is not How.AUGMENTED:
                later[home[0]] = binding
            fork = self._fork(binding, known) if settled is None else None
            if fork is not None and fork not in unsettled:
                inner = self.among(bindings, fork, 0, behind)
                before = (each for each in inner if not self._is_open(each, place))
                if self._binds(fork, self._bound_blocks(before)):
                    settled = fork
                else:
                    unsettled.add(fork)
        reached += self._carried(bindings, behind, place, settled or killer, known)
        return tuple(reached)

    def _is_open(self, binding: Binding, place: cst.CSTNode) -> bool:
        """Return whether a place is inside the binding statement, so before the binding happens."""
        return self.tree.inside(place, binding.node) and not isinstance(binding.node, cst.For)

    def _carried(
        self,
        bindings: list[Binding],
        behind: int,
        place: cst.CSTNode,
        killer: cst.CSTNode | None,
        known: set[cst.CSTNode],
    ) -> list[Binding]:
        """Return the bindings, from `behind` on, that a loop carries into its next pass."""
        found: dict[Binding, None] = {}
        for loop in self.tree.ancestors(place) if behind < len(bindings) else ():
            kind = type(loop)
            if kind in _FRAMES:
                break
            if type(loop) is not cst.For and type(loop) is not cst.While:
                continue
            if killer is not None and self.tree.inside(killer, loop):
                break
            later: dict[cst.CSTNode, Binding] = {}
            for binding in reversed(self.among(bindings, loop.body, behind)):
                if binding.node is loop or not self.tree.inside(binding.node, loop.body):
                    continue
                if not self._is_hidden(binding, later, known):
                    found[binding] = None
                if binding.how is not How.AUGMENTED:
                    later[self._home(binding)[0]] = binding
        return sorted(found, key=_AT)

    def stored(self, target: cst.CSTNode) -> Binding | None:
        """Return the binding whose target is a name or an attribute."""
        return self._stored.get(target)

    def reads(self, name: cst.CSTNode) -> bool:
        """Return whether a name or an attribute is read (not assigned or deleted)."""
        binding = self._stored.get(name)
        return binding is None or binding.how is How.AUGMENTED

    def uses(self, binding: Binding, within: cst.CSTNode | None = None) -> Iterator[cst.Name]:
        """Yield the names that can read a binding, all or those inside a node, in source order."""
        found = self.readers(binding)
        return iter(found if within is None else self.tree.among(found, within))

    def readers(self, binding: Binding) -> Sequence[cst.Name]:
        """Return the names that can read a binding, in source order."""
        binding = self._origins.get(binding, binding)
        words = (binding.name, *self.aliases(binding.name))
        for word in words:
            if word not in self._read_words:
                self._read_words.add(word)
                self._find_readers(word)
        found = self._readers.get(_identity(binding), ())
        return found if len(words) == 1 else sorted(found, key=self.tree.order)

    def only_use(self, line: cst.CSTNode | None) -> cst.Name | None:
        """Return the only read, in its function, of the single name that an assignment binds."""
        if not isinstance(line, cst.Assign) or len(line.targets) != 1:
            return None
        target = line.targets[0].target
        binding = self.stored(target) if isinstance(target, cst.Name) else None
        uses = list(self.uses(binding, self.home(target))) if binding is not None else []
        return uses[0] if len(uses) == 1 and self.only(uses[0]) is binding else None

    def line_for(self, use: cst.CSTNode | None) -> cst.Assign | None:
        """Return the assignment of a name that nothing but `use` reads in its function."""
        line = self.only(use).node
        return line if isinstance(line, cst.Assign) and self.only_use(line) is use else None

    def only_read_at(self, use: cst.Name) -> cst.BaseExpression | None:
        """Return the value assigned to a name in the same block and used only here."""
        node = self.only(use).node
        if not isinstance(node, cst.Assign) or not isinstance(node.targets[0].target, cst.Name):
            return None
        if len(node.targets) != 1 or self.blocks(node) != self.blocks(use):
            return None
        scope = self.scope(use)
        mentions = [
            name
            for name in self.tree.spelled(use.value)
            if self.lookup(name.value, self.scope(name)) is scope
        ]
        return node.value if len(mentions) == 2 and use.value not in scope.outward else None

    def _find_readers(self, word: str) -> None:
        """Record which bindings the names with one spelling can read."""
        for name in self.tree.spelled(word):
            if self.reads(name):
                for each in self.reaching(name):
                    origin = self._origins.get(each, each)
                    self._readers.setdefault(_identity(origin), []).append(name)
