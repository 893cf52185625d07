package sandbox

import (
	"testing"

	"github.com/contiv-agent/contiv-agent/test/simulate/powerloss"
)

// TestLossesOfPower runs some seeds in a process whose system calls are followed: its nodes lose power, and with it what no fsync has covered. CONTIV_POWER_SEED and
// CONTIV_POWER_SEEDS choose others.
func TestLossesOfPower(t *testing.T) { powerloss.FollowTest(t, "TestSandboxes", 2, "GOGC=400") }
