"""Why a gang waits: reason codes, and the numbers behind them."""
