package simulate

import (
	"testing"

	"github.com/contiv-agent/contiv-agent/test/simulate/powerloss"
)

// powerKinds are the kinds of faults beside which nodes lose power in a followed process.
const powerKinds = LosePower + "," + LosePower + "," + External + "," + External + "," + KillAgent + "," + CutVPP

// TestLossesOfPower runs some seeds in a process whose system calls are followed: its nodes lose power, and with it what no fsync has covered. CONTIV_POWER_SEED and
// CONTIV_POWER_SEEDS choose others.
func TestLossesOfPower(t *testing.T) {
	powerloss.FollowTest(t, "TestSimulate", 3, "CONTIV_KINDS="+string(powerKinds))
}
