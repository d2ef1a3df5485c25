"""Reduction of a failing random program."""


def smaller(plan, tries, fails, budget):
    """Returns the smallest plan found that still fails.

        tries   plan -> iterable of simpler plans
        budget  maximum number of plans to run
    """
    found = True
    while found and budget > 0:
        found = False
        for p in tries(plan):
            budget -= 1
            if fails(p):
                plan, found = p, True
                break
            if budget <= 0:
                break
    return plan
