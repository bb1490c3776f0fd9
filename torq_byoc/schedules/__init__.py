"""Floor 4: decisions, their cost, and the TIR schedules that apply them."""
