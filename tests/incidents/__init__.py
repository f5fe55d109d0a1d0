"""Time travel, verification, bundles and forks, on recorded days."""
