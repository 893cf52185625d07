// Package policer turns limits of interfaces into requests to VPP's policer, and its dump back into values.
//
// Invariant: a policer is applied to an interface at most once, and is not deleted before it is removed there. VPP checks neither, and does not survive a
// packet that meets a policer that is gone.
package policer
