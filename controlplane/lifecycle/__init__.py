"""One job: transition tables, evolve, settle, timers, restarts, effects, runs. It knows no world."""
