"""Reports over plain data: summaries, layer tables, timelines, traces."""
