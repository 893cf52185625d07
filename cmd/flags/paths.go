package flags

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
)

// AddSocket adds the flag of a command that connects to a running VPP.
func AddSocket(fs *pflag.FlagSet, socket *string) {
	fs.StringVar(socket, "vpp-socket", "/run/vpp/api.sock", "binary-API socket of VPP")
}

// AddLock adds the flag of a command that programs a VPP.
func AddLock(fs *pflag.FlagSet, lock *string) {
	fs.StringVar(lock, "vpp-lock", Auto, "files (this path, and -services or -policies) that keep a second agent off this VPP; empty: none; auto: --vpp-socket with .owner, beside it")
}

// LockPath returns the path of a VPP's lock.
func LockPath(lock, socket string) string {
	if lock == Auto {
		return socket + ".owner"
	}
	return lock
}

// NodeName returns the node's name: the flag, or $NODE_NAME, which a DaemonSet sets, or the host's name.
func NodeName(flag string) string {
	if flag != "" {
		return flag
	}
	if name := os.Getenv("NODE_NAME"); name != "" {
		return name
	}
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return strings.ToLower(name)
}

// Auto stands for a value that the program chooses.
const Auto = "auto"

// EnvStatusSocket is the environment variable for the status socket, for run and its clients. A flag wins.
const EnvStatusSocket = "CONTIV_STATUS_SOCKET"

// StatusSocket returns the path of the status socket; Auto: that of the environment, or the default.
func StatusSocket(flag string) string {
	if flag != Auto {
		return flag
	}
	if path := os.Getenv(EnvStatusSocket); path != "" {
		return path
	}
	return runPath("agent.sock")
}

// JournalPath returns the path of the agent's journal. The default lives as long as VPP can.
func JournalPath(flag string, embedded bool) string {
	switch {
	case flag != Auto:
		return flag
	case embedded || os.Geteuid() != 0:
		return ""
	}
	return "/run/contiv-agent/journal"
}

// runPath returns the path of a socket in a folder of the current user. In a folder that users share, another user could
// create the name first and answer for the agent. "": the user has no such folder, and a flag must name a path.
func runPath(name string) string {
	if os.Geteuid() == 0 {
		return filepath.Join("/run/contiv-agent", name)
	}
	return userPath(name)
}

// userPath is runPath for users other than root.
func userPath(name string) string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "contiv-agent", name)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "contiv-agent", name)
}

// GRPCSocket returns the socket on which run listens for other programs; auto: the default.
func GRPCSocket(flag string) string {
	if flag != Auto {
		return flag
	}
	return runPath("grpc.sock")
}

// healthzAddress returns the flag's address; auto: kube-proxy's default address.
func healthzAddress(flag string, embedded bool) string {
	switch {
	case flag != Auto:
		return flag
	case embedded:
		return ""
	}
	return ":10256"
}
