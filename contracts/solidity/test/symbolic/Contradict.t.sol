// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Evidence} from "../../src/lib/Evidence.sol";

/// Proved for all reports of 78 bytes and one or two more: they contradict each other exactly if what names the node, the
/// provider, the number, the run and the member is the same, and the rest is not.
contract ContradictSymbolic {
    /// node(20) provider(20) seq(8) | fence(12) | lease(12) attempt(4) member(2)
    struct Named {
        bytes20 node;
        bytes20 provider;
        bytes8 seq;
        bytes18 run;
    }

    function _report(Named memory x, bytes12 fence, bytes memory rest) private pure returns (bytes memory) {
        return bytes.concat(x.node, x.provider, x.seq, fence, x.run, rest);
    }

    function check_reports_of_equal_length(Named memory x, Named memory y, bytes12 f, bytes12 g, bytes1 a, bytes1 b)
        external
        pure
    {
        bool named = x.node == y.node && x.provider == y.provider && x.seq == y.seq && x.run == y.run;
        bool said = Evidence.contradict(_report(x, f, bytes.concat(a)), _report(y, g, bytes.concat(b)));
        assert(said == (named && a != b));
    }

    function check_reports_of_other_lengths(Named memory x, Named memory y, bytes12 f, bytes12 g, bytes1 a, bytes2 b)
        external
        pure
    {
        bool named = x.node == y.node && x.provider == y.provider && x.seq == y.seq && x.run == y.run;
        bool said = Evidence.contradict(_report(x, f, bytes.concat(a)), _report(y, g, bytes.concat(b)));
        assert(said == named);
    }

    function check_a_report_speaks_for_whom_it_names(Named memory x, bytes12 f) external pure {
        (address node, address provider) = Evidence.speakerOf(_report(x, f, ""));
        assert(bytes20(node) == x.node && bytes20(provider) == x.provider);
    }
}
