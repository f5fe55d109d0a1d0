"""How much each queue may use, own, lend and borrow."""
