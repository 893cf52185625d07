package manual

import "maps"

// item is a name and what is to be known about it.
type item struct{ name, text string }

// findings say what exit code 3 means, by command.
var findings = map[string]string{
	"plan":              "there are changes to make",
	"trace":             "--diff: a difference; --expect: another verdict; --live: another path than predicted",
	"config diff":       "a difference",
	"status":            "the agent is not in sync, or not healthy",
	"doctor":            "something is missing, wrong or dangerous",
	"verify":            "a difference, something that was not compared, or an assertion that does not hold",
	"cleanup":           "--dry-run: there is something to remove",
	"replay":            "--bisect: no record changed the verdict",
	"connectivity test": "a check failed",
}

// Findings returns what exit code 3 means, by command.
func Findings() map[string]string { return maps.Clone(findings) }

// flagFile is the file or folder that a flag names by default.
type flagFile struct{ path, text, only string } // only: for this command

const runtimeFolder = "; for other users than root in contiv-agent/ of $XDG_RUNTIME_DIR or of the cache folder"

// flagFiles are those of the flags, by name of the flag.
var flagFiles = map[string]flagFile{
	"vpp-socket":    {path: "/run/vpp/api.sock", text: "binary-API socket of VPP"},
	"vpp-lock":      {path: "/run/vpp/api.sock.owner", text: "lock that keeps a second agent off this VPP"},
	"stats-socket":  {path: "/run/vpp/stats.sock", text: "stats segment of VPP"},
	"status-socket": {path: "/run/contiv-agent/agent.sock", text: "socket of the agent's status" + runtimeFolder},
	"grpc-socket":   {path: "/run/contiv-agent/grpc.sock", text: "socket for programs that add configuration" + runtimeFolder},
	"grpc-db":       {path: "/var/bolt/grpc.db", text: "what these programs want, for the next start"},
	"journal":       {path: "/run/contiv-agent/journal", text: "the agent's objects in VPP that VPP keeps no tag for"},
	"cni-state":     {path: "/var/lib/contiv-agent", text: "addresses and attachments of pods"},
	"cni-conf-dir":  {path: "/etc/cni/net.d", text: "network configuration lists of the container runtime"},
	"cni-bin-dir":   {path: "/opt/cni/bin", text: "CNI plugins of the container runtime"},
	"flows-folder":  {path: "/tmp", text: "folder in which VPP writes captured packets"},
	"kubeconfig":    {path: "~/.kube/config", text: "access to the cluster", only: "run"},
}

// forTerminals are the variables that change text for people.
var forTerminals = []item{
	{"COLUMNS", "width of the text on a terminal; default: the terminal's"},
	{"NO_COLOR", "not empty: no colours"},
	{"TERM", "dumb: no colours"},
}

// flagVariables are the environment variables that are read in place of a flag, by name of the flag.
var flagVariables = map[string][]item{
	"node":          {{"NODE_NAME", "name of this node, if --node is not set; else the name of the host"}},
	"status-socket": {{"CONTIV_STATUS_SOCKET", "socket of the agent's status, if --status-socket is auto"}, {"XDG_RUNTIME_DIR", "folder of sockets for other users than root"}},
	"output":        forTerminals,
	"in-cluster":    {{"KUBERNETES_SERVICE_HOST", "address of the API server in a pod, with KUBERNETES_SERVICE_PORT, unless --api-server says another"}},
	"typha-service": {{"NAME_SERVICE_HOST", "address of the fan-out servers' Service NAME, with NAME_SERVICE_PORT, if its DNS name has none"}},
}

// commandFiles and commandVariables are those without a flag, by command.
var (
	commandFiles = map[string][]item{
		"felix-driver": {{"/etc/contiv-agent/felix-driver.yaml", "configuration, if it exists and neither --config nor $CONTIV_FELIX_DRIVER_CONFIG names another"}},
	}
	commandVariables = map[string][]item{
		"contiv-agent":   forTerminals,
		"kubectl-contiv": forTerminals,
		"felix-driver": {
			{"CONTIV_FELIX_DRIVER_CONFIG", "file of the configuration; those below replace one field of it"},
			{"CONTIV_FELIX_DRIVER_VPP_SOCKET", "vpp.socket"},
			{"CONTIV_FELIX_DRIVER_SIM", "vpp.sim"},
			{"CONTIV_FELIX_DRIVER_STATUS_SOCKET", "statusSocket"},
			{"CONTIV_FELIX_DRIVER_LISTEN", "listen"},
			{"CONTIV_FELIX_DRIVER_VIEW", "view"},
			{"CONTIV_FELIX_DRIVER_JOURNAL", "journal"},
			{"CONTIV_FELIX_DRIVER_UPLINK", "interfaces.uplink"},
			{"CONTIV_FELIX_DRIVER_OVERLAY", "interfaces.overlay"},
			{"CONTIV_FELIX_DRIVER_HOST", "interfaces.host"},
			{"NODE_NAME", "node"},
		},
		"run": {
			{"GOGC", "percentage that memory may grow before garbage collection; without it the agent adapts to its cgroup"},
			{"GOMEMLIMIT", "limit of Go's heap; without it the agent derives one from its cgroup"},
		},
		"fanout": {
			{"CONTIV_FANOUT_FLAG", "each flag, in upper case and with _ for -, as CONTIV_FANOUT_LISTEN; a flag on the command line wins"},
			{"GOGC", "as --gc-percent, before which it is used"},
		},
	}
)
