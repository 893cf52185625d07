package protocol

import (
	"path/filepath"
	"strings"
	"unicode"
)

const (
	maxContainerID = 253
	maxIfName      = 15 // IFNAMSIZ without the zero byte
	maxText        = 4096
)

// Validate returns an error with the code 4 if a field cannot be that of a container: the specification's rules, and a limit on sizes.
func (a Attachment) Validate() error {
	switch {
	case a.ContainerID == "":
		return Errorf(CodeInvalidEnvironment, "CNI_CONTAINERID is empty")
	case len(a.ContainerID) > maxContainerID || !plain(a.ContainerID):
		return Errorf(CodeInvalidEnvironment, "CNI_CONTAINERID %.64q is not a letter or digit, followed by at most %d letters, digits, _, . and -", a.ContainerID, maxContainerID-1)
	case a.IfName == "" || len(a.IfName) > maxIfName || a.IfName == "." || a.IfName == ".." ||
		strings.ContainsFunc(a.IfName, func(r rune) bool { return r == '/' || r == ':' || unicode.IsSpace(r) || !unicode.IsPrint(r) }):
		return Errorf(CodeInvalidEnvironment, "CNI_IFNAME %.64q is not the name of a network interface (1 to %d bytes)", a.IfName, maxIfName)
	}
	return nil
}

// plain reports whether an identifier has the form that the specification prescribes.
func plain(id string) bool {
	for i := range len(id) {
		c := id[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '_' && c != '.' && c != '-') {
			return false
		}
	}
	return true
}

// Validate returns an error if a field is not what a call may have; Netns may be empty.
func (r Request) Validate() error {
	if err := r.Attachment.Validate(); err != nil {
		return err
	}
	switch {
	case r.Netns != "" && !filepath.IsAbs(r.Netns) || len(r.Netns) > maxText || strings.ContainsRune(r.Netns, 0):
		return Errorf(CodeInvalidEnvironment, "CNI_NETNS %.64q is not an absolute path", r.Netns)
	case len(r.Network) > maxText || len(r.Pod.Namespace) > maxText || len(r.Pod.Name) > maxText || len(r.Pod.UID) > maxText:
		return Errorf(CodeInvalidEnvironment, "a name in CNI_ARGS or in the network configuration is longer than %d bytes", maxText)
	case r.MTU < 0 || r.MTU > 65535:
		return Errorf(CodeInvalidConfig, "mtu: %d is not an MTU (0 to 65535)", r.MTU)
	}
	for i, ip := range r.IPs {
		if !ip.Address.IsValid() {
			return Errorf(CodeInvalidConfig, "ips[%d]: no address", i)
		}
	}
	return r.validatePorts()
}

func (r Request) validatePorts() error {
	for i, m := range r.PortMappings {
		switch {
		case m.HostPort == 0 || m.ContainerPort == 0:
			return Errorf(CodeInvalidConfig, "portMappings[%d]: hostPort %d and containerPort %d must be ports (1 to 65535)", i, m.HostPort, m.ContainerPort)
		case m.Protocol != "TCP" && m.Protocol != "UDP" && m.Protocol != "SCTP":
			return Errorf(CodeInvalidConfig, "portMappings[%d].protocol: %.16q is not TCP, UDP or SCTP", i, m.Protocol)
		}
	}
	return nil
}
