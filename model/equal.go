package model

import (
	"reflect"
	"time"
)

// Equal reports whether a and b mean the same to a data plane. It ignores TriggerTime, the time an EndpointSlice was
// last touched. Nil equals only nil; a typed nil pointer is not an Object and must not be passed.
func Equal(a, b Object) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	x, isX := a.(*EndpointSlice)
	y, isY := b.(*EndpointSlice)
	if isX && isY && !x.TriggerTime.Equal(y.TriggerTime) {
		cx, cy := *x, *y
		cx.TriggerTime, cy.TriggerTime = time.Time{}, time.Time{}
		a, b = &cx, &cy
	}
	return reflect.DeepEqual(a, b)
}

// AnnotationPrefix starts every annotation and label that this project defines.
const AnnotationPrefix = "contiv-agent.io/"
