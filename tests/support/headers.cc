/* SPDX-License-Identifier: Apache-2.0 */
// headers.cc: the program that compiles the precompiled header of all tests; it is never run.
int main()
{
    return 0;
}
