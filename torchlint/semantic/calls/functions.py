"""The call graph of one file: what a call runs, who calls a function, what it returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Final

import libcst as cst

from torchlint.caching import cached_method
from torchlint.semantic.calls.aliases import Aliases
from torchlint.semantic.calls.annotations import acts, named_types
from torchlint.semantic.calls.attributes import Attributes
from torchlint.semantic.calls.classes import Classes
from torchlint.semantic.calls.instances import SAME, WRAPPERS, Instances
from torchlint.semantic.calls.overriding import Overriding, is_abstract
from torchlint.semantic.calls.part import Part
from torchlint.semantic.calls.passing import Passing
from torchlint.semantic.calls.switches import Switches
from torchlint.semantic.calls.unpacking import Unpacking
from torchlint.semantic.scope.limits import CALLED, REACHED
from torchlint.semantic.scope.memo import AnswerIndex, Memo, memoized
from torchlint.semantic.scope.names import Names
from torchlint.semantic.scope.scopes import Binding, How, Scopes, dotted
from torchlint.semantic.syntax.methods import word_of
from torchlint.semantic.syntax.tree import NodeT, Section, Tree
from torchlint.semantic.view import Symbol

Definition = cst.FunctionDef | cst.ClassDef

_DEFINING: Final = (How.FUNCTION, How.CLASS, How.ASSIGN)


class Functions:
    """Follows calls to definitions of the same file, and back."""

    def __init__(self, tree: Tree, scopes: Scopes, names: Names) -> None:
        self.tree = tree
        self.scopes = scopes
        self.names = names
        trail = names.trail
        self._definitions = Memo[cst.CSTNode, "Definition | None"](None, trail, self._definition)
        self.definition = self._definitions.answer
        """Return the one function or class of this file that an expression names."""
        self._instances = Memo[cst.CSTNode, "cst.ClassDef | None"](None, trail, self._instance_of)
        self.instance_of = self._instances.answer
        """Return the class of this file that an expression is known to be an instance of."""
        self._holding = Instances(tree, scopes, names)
        self.holders = self._holding.holders
        """Return the words that may hold the function or class of a word."""
        self._overriding = Overriding(self)
        self.is_base = self._overriding.is_base
        """Return whether another class in view derives from a class."""
        self.inheriting = self._overriding.inheriting
        """Yield the class of a method, and the subclasses in view that do not override it."""
        self.is_abstract = is_abstract
        """Return whether a method only says that subclasses have to define it."""
        self._passing = Passing(self)
        attributes = Attributes(self._passing)
        self.attribute = attributes.bindings
        """Return the bindings of an attribute of a module or of an instance of a class in view."""
        self.handed = attributes.handed
        """Return what the call that makes an instance passes for an attribute that keeps it."""
        self._unpacking = Unpacking(self)
        self.switches = Switches(self)
        self.owner_of_self = self._passing.owner_of_self
        """Return the class of a `self` parameter, None for any other parameter."""
        self.given = self._passing.given
        """Return the expressions that calls in view pass to a parameter, and its default."""
        self.gathered = self._passing.gathered
        """Return the arguments of calls in view that `*args` or `**kwargs` gathers."""
        self.passed = self._passing.passed
        """Return the expression that a call passes for a parameter, None if it passes none."""
        self._aliases = Aliases(self)
        self.surely_held = self._aliases.surely_held
        """Return the functions in view that calling a value runs, none if it may run another."""
        self._classes = Classes(self._aliases, self._holding)
        self.classes_of = self._classes.of
        """Return the classes in view of which a value may be an instance."""
        self.added = self._classes.added
        """Yield what is added to a container after it was made."""
        self.taken = self._passing.taken
        """Return the binding of the parameter for which a call passes an expression."""
        self.named_like = self._aliases.named_like
        """Return the calls, on objects of an unknown class, of what has a method's name."""

    # -- definitions ----------------------------------------------------------

    def _definition(self, node: cst.CSTNode) -> Definition | None:
        if type(node) is cst.Name:
            return self._joint(self.scopes.reaching(node))
        linked = self.names.linked(node) if type(node) is cst.Attribute else ()
        if linked:
            return self._joint(linked)
        if type(node) is cst.Attribute and node.attr.value in self._function_names:
            owner = self.instance_of(node.value)
            if owner is None:
                named = self.definition(node.value)
                owner = named if type(named) is cst.ClassDef else None
            if owner is not None:
                found = self.method(owner, node.attr.value)
                return found and self._overriding.only(found, owner)
        if type(node) is cst.Call and self.names.is_partial(node):
            return self.definition(node.args[0].value) if node.args else None
        return None

    def definitions(self, region: cst.CSTNode) -> Iterator[Definition]:
        """Yield the functions and classes in view that names in some code refer to."""
        names = (each for each in self.tree.within(region, cst.Name) if self.scopes.reads(each))
        parts = (
            each for each in self.tree.within(region, cst.Attribute) if self.names.linked(each)
        )
        for each in (*names, *parts):
            found = self.definition(each)
            if found is not None:
                yield found

    @cached_property
    def _called_words(self) -> frozenset[str]:
        """The names, and last words of attributes, that can refer to a definition of this file."""
        bound = (binding.name for binding in self.scopes.bindings() if binding.how in _DEFINING)
        return self._function_names.union(bound, self._holding.words)

    @cached_property
    def _function_names(self) -> frozenset[str]:
        return frozenset(function.name.value for function in self.tree.all(cst.FunctionDef))

    def partial(self, call: cst.Call) -> str | None:
        """Return the qualified name that calling a `functools.partial` object runs."""
        made = self.prepared(call)
        given = made.args if made is not None else ()
        return self.names.name(given[0].value) if given else None

    def prepared(self, call: cst.Call) -> cst.Call | None:
        """Return the `functools.partial` whose object a call runs, with its first arguments."""
        return self._passing.prepared(call.func)

    def _joint(self, bindings: tuple[Binding, ...]) -> Definition | None:
        found: set[Definition] = set()
        for binding in bindings:
            if isinstance(binding.node, (cst.FunctionDef, cst.ClassDef)):
                found.add(binding.node)
            elif binding.how is How.ASSIGN and binding.value is not None:
                inner = self.definition(binding.value)
                if inner is None:
                    return None
                found.add(inner)
            elif (owner := self._passing.class_given(binding)) is not None:
                found.add(owner)
            else:
                return None
        return found.pop() if len(found) == 1 else None

    def bases(self, owner: cst.ClassDef) -> list[str]:
        """Return the qualified names of all bases of a class, inherited ones included."""
        named = (base for line in self.lineage(owner) for base in _bases(line))
        return [self.names.name(base) or dotted(base) for base in named]

    def classes(self, node: cst.BaseExpression) -> list[str]:
        """Return the names of a class: its own in a library, those of its bases in view."""
        owner = self.definition(node)
        own = [self.names.name(node) or ""]
        return self.bases(owner) if isinstance(owner, cst.ClassDef) else own

    def lineage(self, owner: cst.ClassDef) -> list[cst.ClassDef]:
        """Return a class and its base classes in this file, the class first."""
        found = [owner]
        for at in found:
            for base in _bases(at):
                inner = self.definition(base)
                if type(inner) is cst.ClassDef and inner not in found:
                    found.append(inner)
        return found

    def outer_bases(self, owner: cst.ClassDef) -> list[cst.BaseExpression]:
        """Return the bases of a class, inherited ones included, that are no class in view."""
        named = (base.value for line in self.lineage(owner) for base in line.bases)
        return [each for each in named if type(self.definition(each)) is not cst.ClassDef]

    def method(self, owner: cst.ClassDef, name: str) -> cst.FunctionDef | None:
        """Return a method by name, including one inherited from a base class in this file."""
        for line in self.lineage(owner):
            for binding in reversed(self.scopes.scope_at(line).bindings.get(name, [])):
                if isinstance(binding.node, cst.FunctionDef):
                    return binding.node
        return None

    def _instance_of(self, node: cst.CSTNode) -> cst.ClassDef | None:
        if type(node) is cst.Call:
            return self._made_by(node)
        if type(node) is cst.Name:
            if not self._holding.may_be_in(node.value):
                return None
            return self._own_class(node) or self._instance_of_all(self.scopes.reaching(node))
        if type(node) is cst.Attribute:
            if node.attr.value == "module":
                return self.instance_of(node.value)
            if self._holding.may_be_in(node.attr.value):
                return self._instance_of_all(self.attribute(node))
        return None

    def _made_by(self, node: cst.Call) -> cst.ClassDef | None:
        made = self.definition(node.func)
        if isinstance(made, cst.ClassDef):
            return made
        if type(made) is cst.FunctionDef:
            given = self._passing.handed_back(node, made)
            return self._returned_class(made) if given is None else self.instance_of(given)
        if type(node.func) is cst.Subscript:
            found = {
                each if isinstance(each, cst.ClassDef) else self._returned_class(each)
                for each in self._aliases.surely_named(node.func)
            }
            return found.pop() if len(found) == 1 else None
        if isinstance(node.func, cst.Attribute) and node.func.attr.value in SAME:
            return self.instance_of(node.func.value)
        if self.names.name(node.func) in WRAPPERS and node.args:
            return self.instance_of(node.args[0].value)
        if self.names.name(node.func) == "builtins.super":
            owner = self.scopes.class_of(node)
            line = self.lineage(owner)[1:2] if owner is not None else []
            return line[0] if line else None
        return None

    def _returned_class(self, function: cst.FunctionDef) -> cst.ClassDef | None:
        """Return the class of what a function makes and returns."""
        found = {self.instance_of(value) for value in self.returns(function)}
        return found.pop() if len(found) == 1 and not self.is_generator(function) else None

    def _own_class(self, name: cst.Name) -> cst.ClassDef | None:
        """Return the class of the instance if a parameter is a method's first, else None."""
        node = self.scopes.only(name).node
        return self.owner_of_self(node) if type(node) is cst.Param else None

    def _instance_of_all(self, bindings: tuple[Binding, ...]) -> cst.ClassDef | None:
        found: set[cst.ClassDef | None] = set()
        for binding in bindings:
            value = binding.value
            if type(value) is cst.Name and value.value == "None":
                continue
            if binding.how is How.ASSIGN and value is not None:
                found.add(self.instance_of(value))
            elif binding.how is How.PARAMETER and type(binding.node) is cst.Param:
                found |= self._instances_given(binding.node)
            elif binding.how is How.UNPACKED and len(binding.path) == 1:
                found.add(self._unpacking.instance(value, binding.path[0]))
            else:
                return None
        return found.pop() if len(found) == 1 else None

    def _instances_given(self, parameter: cst.Param) -> set[cst.ClassDef | None]:
        """Return the classes of what calls pass to a parameter, else the one it is declared as."""
        found = {self.instance_of(given) for given in self.given(parameter)} or {None}
        if None not in found or parameter.annotation is None:
            return found
        declared = [*named_types(parameter.annotation.annotation)]
        owner = self.definition(declared[0]) if len(declared) == 1 else None
        return {owner if type(owner) is cst.ClassDef and acts(self.tree, owner) else None}

    def bindings(self, node: cst.CSTNode | None) -> tuple[Binding, ...]:
        """Return the bindings of a name or an attribute, none for other nodes."""
        if type(node) is cst.Attribute:
            return self.attribute(node)
        return self.scopes.reaching(node) if type(node) is cst.Name else ()

    def is_self(self, node: cst.CSTNode) -> bool:
        """Return whether a name is the first parameter of a method."""
        found = (each.parameter for each in self.scopes.reaching(node))
        return any(each is not None and self.owner_of_self(each) for each in found)

    def held(self, binding: Binding) -> list[cst.BaseExpression]:
        """Return what a binding is assigned, or what calls in view pass for a parameter."""
        if binding.parameter is not None:
            return self.given(binding.parameter)
        return [] if binding.assigned is None else [binding.assigned]

    # -- imports --------------------------------------------------------------

    @cached_property
    def imported(self) -> tuple[str, ...]:
        """The qualified names that the code in view imports at the top of the module."""
        return tuple(
            binding.qualified
            for binding in self.scopes.module_bindings()
            if binding.how is How.IMPORT and self._is_in_view(binding)
        )

    def imports(self, *modules: str) -> bool:
        """Return whether the file imports one of these modules, or anything from one."""
        found = (*self.imported, *self.scopes.star_imports)
        wanted = tuple(f"{module}." for module in modules)
        return any(f"{name}.".startswith(wanted) for name in found)

    def imports_beside(self, node: cst.CSTNode, *modules: str) -> bool:
        """Return whether the module in which a node stands imports one of some others."""
        return self._module_imports(self.tree.module_of(node), modules)

    @cached_method
    def _module_imports(self, module: cst.Module, modules: tuple[str, ...]) -> bool:
        wanted = tuple(f"{each}." for each in modules)
        return any(
            f"{binding.qualified}.".startswith(wanted)
            for binding in self.scopes.module_bindings()
            if binding.how is How.IMPORT
            and self.tree.module_of(binding.node) is module
            and self._is_in_view(binding)
        )

    def _is_in_view(self, binding: Binding) -> bool:
        """Return whether the code in view reads an imported name, or could alone read it."""
        if not isinstance(self.tree, Section):
            return True
        if not any(self.tree.inside(binding.node, line) for line in self.tree.body):
            return False
        word = binding.name
        return bool(self.tree.spelled(word)) or not self.tree.whole.spelled(word)

    # -- callers --------------------------------------------------------------

    def mentions(self, name: str) -> list[cst.CSTNode]:
        """Return the names that can refer to something of this name, then the attributes."""
        words = (name, *self.scopes.aliases(name))
        return [
            *(each for word in words for each in self.tree.spelled(word)),
            *self.attributes(name),
        ]

    def attributes(self, word: str) -> Sequence[cst.Attribute]:
        """Return the attributes with this name that a line uses, on whatever object, in order.

        A line that only names one uses nothing, but in a notebook it may be shown.
        """
        return self._attributes.get(word, ())

    def uncalled(self, word: str, node: cst.CSTNode | None = None) -> list[cst.Attribute]:
        """Return lines, all or of a node's function, that only name an attribute: `net.eval`."""
        found = self._uncalled.get(word, [])
        home = self.scopes.home(node) if node is not None else None
        return [each for each in found if home is None or self.scopes.home(each) is home]

    @cached_property
    def _attributes(self) -> dict[str, list[cst.Attribute]]:
        found: dict[str, list[cst.Attribute]] = {}
        shows = self.tree.source.is_notebook
        for attribute in self.tree.all(cst.Attribute):
            if shows or type(self.tree.parent(attribute)) is not cst.Expr:
                found.setdefault(attribute.attr.value, []).append(attribute)
        return found

    @cached_property
    def _uncalled(self) -> dict[str, list[cst.Attribute]]:
        found: dict[str, list[cst.Attribute]] = {}
        for line in self.tree.all(cst.Expr):
            if type(line.value) is cst.Attribute:
                found.setdefault(line.value.attr.value, []).append(line.value)
        return found

    @memoized(())
    def callers(self, function: cst.FunctionDef) -> tuple[cst.Call, ...]:
        """Return the calls in this file that run a function."""
        found, aliased = list(self._find_callers(function)), list(self._aliases.calls(function))
        if aliased:
            found = [each for each in found if not self.names.is_partial(each)]
        calls = dict.fromkeys((*found, *aliased))
        return tuple(call for call in calls if not self._overriding.is_replaced(call)) or (*calls,)

    def _find_callers(self, function: cst.FunctionDef) -> Iterator[cst.Call]:
        name = function.name.value
        owner = self.scopes.scope(function).node
        if isinstance(owner, cst.ClassDef) and name == "__init__":
            for made in self._overriding.inheriting(function, owner):
                yield from self.makings(made)
            if not self.is_base(owner):
                return
        if isinstance(owner, cst.ClassDef) and name in ("forward", "__call__"):
            for call in self._calls_of_values:
                if function in (*self._classes.run(call.func), *self._overriding.chosen(call)):
                    yield call
        for mention in self._run_by(name).with_answer(function):
            run = self._run_through(mention)
            if run is not None:
                yield run
        if isinstance(owner, cst.ClassDef) and name != "__init__":
            for mention in self.mentions(name):
                holder = self.tree.parent(mention)
                if isinstance(holder, cst.Call) and function in self._overriding.chosen(holder):
                    yield holder

    def makings(self, owner: cst.ClassDef) -> Iterator[cst.Call]:
        """Yield the calls that make an object of a class: in another module it is imported."""
        for mention in self.mentions(owner.name.value):
            call = self.tree.parent(mention)
            if isinstance(call, cst.Call) and call.func is mention:
                near = self.tree.module_of(mention) is self.tree.module_of(owner)
                if near or self.definition(mention) is owner:
                    yield call

    def _run_through(self, mention: cst.CSTNode) -> cst.Call | None:
        """Return the call that runs what a name refers to, or the `functools.partial` around it."""
        call = self.tree.parent(mention)
        if isinstance(call, cst.Call):
            return call if call.func is mention else None
        outer = self.tree.taker(mention)
        return outer if outer is not None and self.names.is_partial(outer) else None

    @cached_property
    def _calls_of_values(self) -> list[cst.Call]:
        """The calls of what may be an instance, or a chain of instances."""
        return [call for call in self.tree.all(cst.Call) if self._holding.may_be(call.func)]

    @cached_method
    def called_unseen(self, function: Definition) -> bool:
        """Return whether code of the project that is not in view may call a function."""
        called = self.tree.view.called_unseen
        if not called:
            return False
        line = [function, *self.tree.ancestors(function)]
        named = [each for each in line if isinstance(each, (cst.FunctionDef, cst.ClassDef))]
        return Symbol(self.tree.path_of(function), named[-1].name.value) in called

    def escapes(self, function: cst.FunctionDef) -> bool:
        """Return whether a function may be called from places that are not in view."""
        if self.called_unseen(function):
            return True
        return bool(self._handed_on(function.name.value).with_answer(function))

    @cached_method
    def _run_by(self, name: str) -> AnswerIndex[cst.CSTNode, Definition | None]:
        """Return the mentions of a name through which calls run what it names."""
        return AnswerIndex(self._definitions, filter(self._run_through, self.mentions(name)))

    @cached_method
    def _handed_on(self, name: str) -> AnswerIndex[cst.CSTNode, Definition | None]:
        """Return the mentions of a name that are not called."""
        mentions = (each for each in self.mentions(name) if not self._is_called(each))
        return AnswerIndex(self._definitions, mentions)

    def _is_called(self, mention: cst.CSTNode) -> bool:
        holder = self.tree.parent(mention)
        return isinstance(holder, cst.Call) and holder.func is mention

    def given_unseen(self, parameter: cst.Param) -> bool:
        """Return whether code that is not in view may pass a parameter, or a dictionary does."""
        function = self.tree.parent(self.tree.parent(parameter))
        if not isinstance(function, cst.FunctionDef) or self.owner_of_self(parameter) is not None:
            return False
        return self.called_unseen(function) or any(
            self.passed(call, function, parameter.name.value) is None
            for call in self.callers(function)
            if any(arg.star for arg in call.args)
        )

    # -- bodies ---------------------------------------------------------------

    def own(self, outer: cst.CSTNode, kind: type[NodeT]) -> Iterator[NodeT]:
        """Yield the nodes of a type that run as part of `outer`, skipping nested functions."""
        return iter(self._own_nodes(outer, kind))

    def run_in(self, region: cst.CSTNode) -> Iterator[cst.Call]:
        """Yield the calls that run with a region, including those in functions it calls."""
        for body in self.reached(region):
            yield from self.own(body, cst.Call)

    @cached_method
    def _own_nodes(self, outer: cst.CSTNode, kind: type[cst.CSTNode]) -> list[Any]:
        function = self.scopes.function
        home = outer if type(outer) is cst.FunctionDef else function(outer)
        return [node for node in self.tree.within(outer, kind) if function(node) is home]

    @cached_method
    def reached(self, outer: cst.CSTNode, depth: int = CALLED) -> tuple[cst.CSTNode, ...]:
        """Return a node and the bodies of functions in this file that it runs, callees last."""
        bodies, edge, seen = [outer], [outer], {outer}
        for _ in range(depth):
            found = dict.fromkeys(each for node in edge for each in self._run_by_calls(node))
            edge = [body for body in found if body not in seen]
            seen.update(edge)
            bodies += edge
        return tuple(bodies)

    def run_with(self, node: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
        """Return the bodies that run together with a node: its callers and everything they run.

        The roots are the module, or the functions that nothing in this file calls.
        """
        outermost: list[cst.CSTNode] = []
        edge: list[cst.CSTNode] = [self.scopes.home(node)]
        seen = set(edge)
        for body in edge:
            around = [
                self.scopes.home(call)
                for call in (self.callers(body) if isinstance(body, cst.FunctionDef) else ())
            ]
            if not around:
                outermost.append(body)
            edge += [each for each in dict.fromkeys(around) if each not in seen]
            seen.update(around)
        bodies = [body for outer in outermost for body in self.reached(outer, REACHED)]
        return tuple(dict.fromkeys([*seen, *bodies]))

    @memoized(())
    def _run_by_calls(self, node: cst.CSTNode) -> tuple[cst.FunctionDef, ...]:
        """Return the functions that the calls of a body run, or hand on to be run."""
        found = (
            callee
            for call in self.own(node, cst.Call)
            for callee in (*self.callees(call), *self._handed_to(call))
            if not self.switches.is_off(call, node)
        )
        return tuple(dict.fromkeys(found))

    def _handed_to(self, call: cst.Call) -> Iterator[cst.FunctionDef]:
        """Yield the functions of a call's own function that it gets to run (`timed(step)`)."""
        if type(call.func) is not cst.Name:
            return
        for arg in call.args:
            if type(arg.value) is cst.Name and arg.keyword is None:
                found = self._definition_of_word(arg.value)
                home = self.scopes.function(call)
                if found is not None and home is not None and self.scopes.function(found) is home:
                    yield found

    def _definition_of_word(self, name: cst.Name) -> cst.FunctionDef | None:
        found = self.definition(name) if name.value in self._function_names else None
        return found if type(found) is cst.FunctionDef else None

    def callee(self, call: cst.Call) -> cst.FunctionDef | None:
        """Return the function of this file that a call runs: a function, method or `forward`."""
        func = call.func
        word = word_of(call)
        if word and word not in self._called_words:
            return None
        found = self.definition(func)
        return self.method(found, "__init__") if type(found) is cst.ClassDef else self.run_by(func)

    def run_by(self, value: cst.BaseExpression) -> cst.FunctionDef | None:
        """Return the function of this file that calling a value runs, itself or as an object."""
        found = self.definition(value)
        if found is not None:
            return found if type(found) is cst.FunctionDef else None
        owner = self.instance_of(value)
        return None if owner is None else self.called_object(owner)

    def called_object(self, owner: cst.ClassDef) -> cst.FunctionDef | None:
        """Return the function in view that calling an object of a class runs."""
        return self.method(owner, "forward") or self.method(owner, "__call__")

    def callees(self, call: cst.Call) -> tuple[cst.FunctionDef, ...]:
        """Return the functions that a call may run: several if subclasses define a method.

        Or if a name holds an object of one class or another.
        """
        found = self.callee(call)
        if found is None:
            held = self._aliases.held(call.func) or self._overriding.chosen(call)
            return held or self._classes.run(call.func)
        if type(call.func) is not cst.Attribute:
            return (found,)
        owner = self.scopes.scope(found).node
        if type(owner) is not cst.ClassDef:
            return (found,)
        possible = self._overriding.possible(found, owner)
        return tuple(dict.fromkeys((*possible, *self._overriding.chosen(call))))

    def runnable(self, value: cst.BaseExpression) -> tuple[cst.FunctionDef, ...]:
        """Return the functions that calling a value may run, wherever that happens."""
        found = self.definition(value)
        if type(found) is not cst.FunctionDef:
            return self._aliases.held(value)
        owner = self.scopes.scope(found).node
        return self._overriding.possible(found, owner) if type(owner) is cst.ClassDef else (found,)

    def returns(self, function: cst.FunctionDef) -> list[cst.BaseExpression]:
        """Return the expressions that a function returns, ignoring bare `return`s."""
        return [
            line.value
            for line in self.tree.within(function, cst.Return)
            if line.value is not None and self.scopes.function(line) is function
        ]

    def is_generator(self, function: cst.FunctionDef) -> bool:
        """Return whether a function is a generator."""
        return any(
            self.scopes.function(node) is function for node in self.tree.within(function, cst.Yield)
        )


class Analysis(Part):
    """What most analyses of a file ask: its functions, nodes, scopes and names."""

    functions: Functions


def _bases(owner: cst.ClassDef) -> Iterator[cst.BaseExpression]:
    """Yield the bases that a class names, both of `Base if TYPE_CHECKING else object`."""
    for base in owner.bases:
        chosen = base.value
        yield from (chosen.body, chosen.orelse) if type(chosen) is cst.IfExp else (chosen,)
