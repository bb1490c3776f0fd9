"""Which layer and stage is to blame for what a model lacks, with the proof and the cure."""
