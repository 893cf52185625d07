package model

// Note is a remark about an object: why it is not served, or how it is served differently than it asks.
type Note struct {
	Ref    Ref
	Reason string // one sentence; log, status and trace show the same text
	// Refused is true when a part of the object is not programmed at all; false for a remark about a limit.
	Refused bool
}
