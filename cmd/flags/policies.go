package flags

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/renderer/acl"
)

// policies are the flags of config.Policies.
type policies struct {
	off         bool
	sourceCheck string
	unknown     string
	trustNode   bool
}

// Values of --source-check.
const (
	sourceStrict      = "strict"
	sourceAnnotations = "annotations"
	sourceOff         = "off"
)

// Values of --unknown-interfaces.
const (
	denyUnknown  = "deny"
	allowUnknown = "allow"
)

func (f *policies) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&f.off, "no-policies", false, "do not enforce policies")
	fs.StringVar(&f.sourceCheck, "source-check", sourceStrict, "addresses a pod may send from: strict (its own), annotations (also those that the pod's annotations contiv-agent.io/source-check and cni.projectcalico.org/allowedSourcePrefixes allow: each user who may create pods may then take any address) or off (any); off also lets packets from outside pass with an address of this node")
	fs.StringVar(&f.unknown, "unknown-interfaces", denyUnknown, "packets on VPP interfaces that may be a pod's (a tap, af_packet or memif without an address, or with a tag that names a pod) until the agent has evaluated the pod: deny (none pass) or allow (all pass). The uplink, the overlay and the host interface are exempt. With --no-policies, or a dataplane driver, the agent attaches no access lists")
	fs.BoolVar(&f.trustNode, "trust-node-addresses", false, "if no --host-address is known, let packets from the node's own addresses reach every pod of the node, as the kubelet's probes must. With nat44 a pod can get such an address, and then reaches pods that policies isolate; policies that allow other nodes' addresses allow pods of these nodes as well")
}

// applyTo writes the flags into the configuration. The error names all wrong flags.
func (f *policies) applyTo(cfg *config.Policies) error {
	cfg.Off, cfg.TrustNodeAddresses = f.off, f.trustNode
	var errs []error
	switch f.sourceCheck {
	case sourceStrict:
	case sourceAnnotations:
		cfg.ACL.SourceCheck = acl.SourceAllowed
	case sourceOff:
		cfg.ACL.SourceCheck = acl.SourceOff
	default:
		errs = append(errs, fmt.Errorf("--source-check %s: must be strict, annotations or off", f.sourceCheck))
	}
	switch f.unknown {
	case denyUnknown:
	case allowUnknown:
		cfg.AllowUnknown = true
	default:
		errs = append(errs, fmt.Errorf("--unknown-interfaces %s: must be deny or allow", f.unknown))
	}
	return errors.Join(errs...)
}
