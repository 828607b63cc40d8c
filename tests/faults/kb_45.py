"""KB-45, ledger_keyed_by_name (https://github.com/vllm-project/vllm/issues/51637): a name reused while an old job runs."""

from kvmodel.language import Counter, Flag, Function, Relation, Sort, action, counter, define, flag, override, require, rigid
from kvmodel.specs.pages import OnePool, Page, Request


class Name(Sort):
    """A request id. Requests of one name are generations of it: a preempted request resumes as the next one."""


class LedgerKeyedByName(OnePool):
    """Jobs that read a request's pages are counted by name, so an old generation's job counts down the new one's."""

    keyed_by_job: Flag = flag(False, kind="defence", doc="The ledger has an entry for each job, whatever name it runs under.")
    sizes = {"Name": 1}
    name: Function[Request, Name] = rigid()
    jobs: Counter[Name] = counter(0, 3)
    preempted: Relation[Request]

    @override
    @define
    def in_use(s, p: Page) -> bool:
        """What the engine believes of a page that is given back: its readers are those of the ledger, and have ended."""
        return any(s.writing[r, p] or (s.reading[r, p] and s.keyed_by_job) for r in Request)

    @action
    def preempt(s, r: Request) -> None:
        """The name's jobs are forgotten; they still run."""
        require(not s.preempted[r] and any(s.holds[r, p] for p in Page), "running")
        s.preempted[r] = True
        s.jobs[s.name[r]] = 0

    @override
    @action
    def begin_read(s, r: Request, p: Page) -> None:
        require(not s.preempted[r] and not s.reading[r, p], "running")
        super().begin_read(r, p)
        if not s.keyed_by_job:
            s.jobs[s.name[r]] += 1

    @override
    @action
    def end_read(s, r: Request, p: Page) -> None:
        super().end_read(r, p)
        if not s.keyed_by_job:
            s.jobs[s.name[r]] -= 1

    @override
    @action(drop=("not reading",))
    def abort(s, r: Request) -> None:
        """A preempted request waits for its jobs themselves, a running one for the ledger."""
        require(
            not any(s.reading[r, p] for p in Page) if s.keyed_by_job or s.preempted[r] else s.jobs[s.name[r]] == 0,
            "no job left",
        )
        super().abort(r)
