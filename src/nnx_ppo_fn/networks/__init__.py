"""Networks: the contract, the modules, and how they compose."""
