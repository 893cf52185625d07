package model

// Note is what a calculation has to say about an object: why it is not served, or not quite as asked.
type Note struct {
	Ref    Ref
	Reason string // one sentence, the same text in log, status and trace
	// Refused is true when a part of the object is not programmed at all; false for a remark about a limit.
	Refused bool
}
