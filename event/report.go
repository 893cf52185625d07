package event

import "github.com/contiv-agent/contiv-agent/model"

// Report is what an agent has to tell others without being asked: what is not as objects ask for, and whether it is well itself.
type Report struct {
	Ready    bool      // every source is in sync, VPP is connected, and changes go through
	Waiting  string    // what for, if not Ready
	Problems []Problem // of Services and policies, in a fixed order; the first of an object is the gravest
	// Summary counts what is not as objects ask for, by state: "2 FAILED, 16 REFUSED"; "" if nothing is.
	Summary string
}

// Problem is why an object, or a part of it, is not in VPP.
type Problem struct {
	Ref    model.Ref
	Reason Reason
	Text   string // one sentence, as the status command has it
}

// Reason is a class of problems, in the spelling of reasons in Kubernetes' Events and conditions.
type Reason string

// The reasons of problems, and the one that there is none any more.
const (
	// NotUnderstood: the object does not convert. A policy fails closed, anything else is kept out.
	NotUnderstood Reason = "NotUnderstood"
	// NotSupported: nothing of a Service, or not all of it, can be rendered as it is.
	NotSupported Reason = "NotSupported"
	// NotEnforced: a part of a policy that applies to pods of this node is not in force, or stricter than it asks for.
	NotEnforced Reason = "NotEnforced"
	// NotProgrammed: VPP on this node does not have it, or not yet.
	NotProgrammed Reason = "NotProgrammed"
	// NotAnswered: load balancers are not told of a Service's endpoints on this node.
	NotAnswered Reason = "NotAnswered"
	// Drifted: another program changed what the agent had made in VPP, a short time ago. Mostly it is repaired already.
	Drifted Reason = "Drifted"
	// VPPSilent: VPP is connected and does not answer. Of a Node.
	VPPSilent Reason = "VPPSilent"
	// VPPShared: another agent programs the same VPP. Of a Node.
	VPPShared Reason = "VPPShared"
	// Rendered: there was such a problem, and there is none left.
	Rendered Reason = "Rendered"
)

// Everywhere tells a problem every agent of the cluster sees, because it is in the objects, from one that this node has.
func (r Reason) Everywhere() bool { return r == NotUnderstood || r == NotSupported }
