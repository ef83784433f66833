"""Presenting: the table of a comparison and the recommendation on the terminal, and the page."""

from collections.abc import Sequence
from pathlib import Path

from pluribus.comparison import record
from pluribus.comparison.decisions import with_costs
from pluribus.metrics.costs import Costs
from pluribus.report.budget import Limit, parse_budget
from pluribus.report.decision_costs import decision_costs
from pluribus.report.groups import Group, group_records
from pluribus.report.judging import qualities
from pluribus.report.page import write_page
from pluribus.report.price_list import make_price_list
from pluribus.report.recommendation import recommend
from pluribus.report.tables import make_table
from pluribus.report.terminal import print_prices, print_table


def present(
    folder: Path, keys: Sequence[str], budget: str = "", metric: str | None = None, costs: Costs | None = None
) -> Path | None:
    """Print the table of some records and the recommendation, and write the page beside them.

    Args:
        folder: Where the records are, with their outcomes.
        keys: The records to show, in this order.
        budget: Limits of cost.
        metric: The metric to judge by.
        costs: Costs of decisions, computed anew from the outcomes.

    Returns:
        The page; None where no run succeeded.
    """
    from rich.console import Console

    limits = parse_budget(budget)
    measured = {one.key: one for one in record.read([folder], outcomes=True)}
    # Runs that were finished before may have been measured with other costs.
    groups = group_records([with_costs(measured[key], costs) for key in keys])
    print_groups(groups, limits, metric)
    console = Console()
    console.print(f"records: {folder / record.FILE}", highlight=False, soft_wrap=True)
    if not any(group.entries for group in groups):
        return None
    page = write_page(folder, groups, limits, metric)
    console.print(f"report:  {page}", highlight=False, soft_wrap=True)
    return page


def print_groups(groups: Sequence[Group], limits: tuple[Limit, ...], metric: str | None) -> None:
    """Print of each network and task the table, the best for each budget, and the recommendation."""
    from rich.console import Console

    console = Console()
    for group in groups:
        print_table(make_table(group), group.title, metric)
        # One page may mix classification and regression, which have different metrics.
        judge = metric if metric in qualities(group) else None
        print_prices(make_price_list(group, judge))
        found = recommend(group, limits, judge)
        answer = [f"{found.title}. {found.sentences[0]}", *found.calibration]
        if found.choice is not None:
            answer += decision_costs(found.choice)
        console.print(" ".join(answer), highlight=False, markup=False)
