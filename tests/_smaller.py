"""Reduction of a random program that fails."""


def smaller(plan, tries, fails, budget):
    """The smallest plan found that still fails.

    tries   plan -> simpler plans, one after another
    budget  how many plans are run at most
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
