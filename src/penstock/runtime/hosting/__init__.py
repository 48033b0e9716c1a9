"""Where lanes run, and how they get there: the engine, restores, migrations, copies."""
