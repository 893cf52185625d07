// Package svcmodel turns the name under which service renderers know a service's identifier into this project's one.
//
// Invariant: ID and model.ServiceID are the same type, so values cross the seam without conversion.
package svcmodel

import "github.com/contiv-agent/contiv-agent/model"

// ID uniquely identifies a service across all namespaces.
type ID = model.ServiceID
