package support

import (
	"fmt"
	"strings"
)

// readme is the file of an archive that says what each file is.
const readme = "README.txt"

// contents says what the files of an agent are. The names are those of questions, and of what is fetched beside them.
var contents = []struct{ file, text string }{ // read only
	{"version.txt", "version of contiv-agent"},
	{"status.json", "contiv-agent status --all --history: every Service and policy, settings (flags), VPP, and the latest transactions"},
	{"plan.json", "contiv-agent plan: what a comparison with VPP would change"},
	{"doctor.txt", "contiv-agent doctor --all: checks of VPP, its memory and tables"},
	{"flows.json", "contiv-agent flows: connections and dropped packets, if the agent watches them (run --flows)"},
	{"vpp.json", "contiv-agent config get --vpp: the values that VPP has acknowledged"},
	{"metrics.txt", "the agent's metrics, as Prometheus reads them"},
	{"journal/", "the newest files of the flight recorder (run --flight-recorder), for contiv-agent replay journal/; journal/left-out.txt says what is missing"},
}

// logs says what the files of an agent's pod are.
var logs = []struct{ file, text string }{ // read only
	{"log.txt", "the last 5,000 lines, at most 8 MiB, of the log of the agent's container"},
	{"log-previous.txt", "the same of the container before its last restart, if there was one"},
	{"log-vpp.txt", "the same of the container vpp of the pod, if it has one"},
	{"support-bundle.stderr", "the agent's pod could not make its part in one step: an older version, or no answer"},
}

// readmeOf returns the text of the file, for the archive of a node or of a cluster.
func readmeOf(cluster bool) []byte {
	var out strings.Builder
	out.WriteString("What an agent of contiv-agent reports about its node. NAME.stderr is what the command behind NAME wrote to standard error, and its exit code.\n")
	if cluster {
		out.WriteString("Each folder is a node.\n")
	}
	out.WriteString("\n")
	list := contents
	if cluster {
		list = append(list[:len(list):len(list)], logs...)
	}
	for _, c := range list {
		fmt.Fprintf(&out, "%-22s %s\n", c.file, c.text)
	}
	if !cluster {
		out.WriteString("\nThe log of the agent is not in it: see kubectl logs, or journalctl.\n")
	}
	out.WriteString(`
In it: names, labels and addresses of pods, nodes, Services and policies, and addresses outside of the cluster.
Not in it: packets, Secrets and ConfigMaps. Private keys, JSON web tokens, passwords in URLs, and values behind the words password, passphrase, secret,
token, authorization and api-key are replaced by REDACTED. Look at the files before you pass them on: other secret text in names or logs is not found.
`)
	return []byte(out.String())
}

// leftOut is the first line of a text that was cut.
func leftOut(bytes int) string { return fmt.Sprintf("%d older bytes are left out\n", bytes) }
