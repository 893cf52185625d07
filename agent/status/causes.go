package status

import (
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

// Cause is a reason of a state, as fields.
type Cause struct {
	Of       string `json:"of"`                 // one of the words below
	Object   string `json:"object,omitempty"`   // that has the remark, if it is another one
	Refused  bool   `json:"refused,omitempty"`  // it keeps a part of the object from being served or enforced
	Endpoint string `json:"endpoint,omitempty"` // namespace/name of a pod, or the name of a host endpoint
	Value    *Value `json:"value,omitempty"`    // that is not configured
	Port     uint16 `json:"port,omitempty"`     // of a Service
	Protocol string `json:"protocol,omitempty"` // TCP, …
	Report   string `json:"report,omitempty"`   // the driver's, about the endpoint; "": none
}

// The values of Cause.Of.
const (
	ofValue       = "value"         // a value is not configured
	ofRemark      = "remark"        // on the object, or on another one
	ofRefusal     = "refused"       // the object is not understood, or asks for too much
	ofSkipped     = "skipped"       // another proxy serves the Service
	ofHealth      = "health-checks" // those of load balancers are not answered
	ofRenderer    = "renderer"      // it failed
	ofNoEndpoints = "no-endpoints"  // of a port
	ofNoInterface = "no-interface"  // of VPP leads to the endpoint
	ofDriver      = "driver"        // the external dataplane driver
)

// because adds a reason in words and as fields.
func (s *Service) because(text string, c Cause) {
	s.Reasons, s.Causes = append(s.Reasons, text), append(s.Causes, c)
}

// because adds a reason in words and as fields.
func (p *Policy) because(text string, c Cause) {
	p.Reasons, p.Causes = append(p.Reasons, text), append(p.Causes, c)
}

// causeOf is a value that is not configured.
func causeOf(v event.ValueStatus) Cause {
	return Cause{Of: ofValue, Value: &Value{Key: v.Key, State: v.State.String(), Error: v.Err, Waiting: v.Details}}
}

// remarkOf is a remark on the object itself.
func remarkOf(n model.Note) Cause { return Cause{Of: ofRemark, Refused: n.Refused} }
