"""What Rollyard costs, beside what people would otherwise use. Figures, never tests."""
