// Package svcmodel turns model.ServiceID into the type name that the Contiv renderer API uses for it.
//
// Invariant: ID and model.ServiceID are the same type, so values need no conversion.
package svcmodel

import "github.com/contiv-agent/contiv-agent/model"

// ID uniquely identifies a service across all namespaces.
type ID = model.ServiceID
