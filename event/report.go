package event

import "github.com/contiv-agent/contiv-agent/model"

// Report is what an agent reports without being asked: the problems of objects, and its own readiness.
type Report struct {
	Ready    bool      // every source is in sync, VPP is connected, and transactions succeed
	Waiting  string    // what the agent waits for, if not Ready
	Problems []Problem // problems of Services and policies, in a fixed order; the first of an object is the gravest
	// Summary counts problems by state: "2 FAILED, 16 REFUSED"; "" if there are none.
	Summary string
}

// Problem says why an object, or a part of it, is not in VPP.
type Problem struct {
	Ref    model.Ref
	Reason Reason
	Text   string // one sentence, as the status command shows it
}

// Reason is a class of problems, spelled like reasons in Kubernetes' Events and conditions.
type Reason string

// The reasons of problems, and Rendered for their end.
const (
	// NotUnderstood: the object does not convert. A policy fails closed, any other object is left out.
	NotUnderstood Reason = "NotUnderstood"
	// NotSupported: a Service, or a part of it, cannot be rendered.
	NotSupported Reason = "NotSupported"
	// NotEnforced: a part of a policy that applies to pods of this node is not in force, or is stricter than the policy
	// asks for.
	NotEnforced Reason = "NotEnforced"
	// NotProgrammed: VPP on this node does not have the object, or does not have it yet.
	NotProgrammed Reason = "NotProgrammed"
	// NotAnswered: the agent does not answer load balancers' health checks for a Service on this node.
	NotAnswered Reason = "NotAnswered"
	// Drifted: another program changed what the agent made in VPP, a short time ago. In most cases it is already
	// repaired.
	Drifted Reason = "Drifted"
	// VPPSilent: VPP is connected and does not answer. The problem is one of a Node.
	VPPSilent Reason = "VPPSilent"
	// VPPShared: another agent programs the same VPP. The problem is one of a Node.
	VPPShared Reason = "VPPShared"
	// VPPDiffers: a proof found that VPP does other than the objects mean, though the agent programs nothing any more.
	VPPDiffers Reason = "VPPDiffers"
	// RemovalsHeld: a source would remove many objects at once. The problem is one of a Node.
	RemovalsHeld Reason = "RemovalsHeld"
	// Rendered: the problems the object had are gone.
	Rendered Reason = "Rendered"
)

// Everywhere says that every agent of the cluster has the problem, because its cause is in the objects and not on this
// node.
func (r Reason) Everywhere() bool { return r == NotUnderstood || r == NotSupported }
